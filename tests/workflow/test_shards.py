"""Sharded jobs in the real DAG: the same files as one job leaves, and a failed shard is all that runs again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import read_cost
from tests.workflow.conftest import Project

SHARDS = {"engine": {"shards": {"calibration": 2, "harvest": 3, "evaluation": 2}}}
CALIBRATION = "results/micro/calibration/rollouts.parquet"
HARVEST = "results/micro/seed0/harvest/g2/k2/rollouts.parquet"
EVALUATION = "results/micro/seed0/dpo/g2/k2/eval/arithmetic.parquet"


@pytest.fixture
def sharded(micro_grid: Project, tmp_path: Path, micro_config: dict[str, Any]) -> Project:
    """A finished micro grid, configured with shards."""
    project = micro_grid.copied(tmp_path / "g2d")
    project.configure(micro_config | SHARDS)
    return project


def test_shards_merge_to_the_file_that_one_job_writes(sharded: Project) -> None:
    whole = {file: (sharded.root / file).read_bytes() for file in (CALIBRATION, HARVEST, EVALUATION)}
    for file in whole:
        (sharded.root / file).unlink()
    (sharded.results / "micro/calibration/cost.json").unlink()
    (sharded.results / "micro/seed0/harvest/g2/k2/cost.json").unlink()
    (sharded.results / "micro/seed0/dpo/g2/k2/eval/arithmetic.cost.json").unlink()
    # A directory where the log of one shard belongs makes that job fail and no other.
    blocked = sharded.results / "logs/harvest_rollouts/micro/seed0/g2/k2.shards/2-of-3.log"
    (blocked / "in the way").mkdir(parents=True)
    failed = sharded.snakemake("--cores", "2", "--keep-going", HARVEST)
    assert failed.returncode != 0
    assert not (sharded.root / HARVEST).exists()
    shutil.rmtree(blocked)

    assert sharded.planned(HARVEST) == {"harvest_rollouts_shard": 1, "harvest_rollouts": 1}
    sharded.build(*whole)
    for file, content in whole.items():
        assert (sharded.root / file).read_bytes() == content, file
    assert sharded.planned(*whole) == {}
    assert not list(sharded.results.rglob("*-of-*.parquet"))
    # Merged shards are gone, so there is no result without a record in the way of another configuration.
    renamed = sharded.snakemake("-n", *whole, "--config", "title=Another")
    assert renamed.returncode == 0, renamed.stdout

    bill = read_cost((sharded.root / HARVEST).with_name("cost.json"))
    drawn = [record for record in bill.records if record.stage == "harvest_rollouts"]
    assert len(drawn) == 4  # three shards and the merge
    assert sum(record.tokens_generated for record in drawn) == pd.read_parquet(sharded.root / HARVEST).token_count.sum()


def test_another_number_of_shards_runs_nothing_again(sharded: Project) -> None:
    assert sharded.planned() == {}
