"""No job computes from a file whose content is not the recorded one, whatever its time stamp says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.models import tiny_policy
from tests.workflow import forked
from tests.workflow.changed_files import BEGAN, changed
from tests.workflow.conftest import Project

CHANGED_FILES = Path(__file__).with_name("changed_files.py")
SEED = "results/micro/seed0"
# Results that people read and jobs do not. A new kind of file belongs here, or some job has to read and refuse it.
FOR_PEOPLE = {
    "results/micro/base/cost.json",  # which no table counts
    "results/micro/seed0/*/g*/k*/README.md",
    "results/micro/seed0/*/g*/k*/adapter/README.md",
    "results/micro/seed0/*/g*/k*/metrics.jsonl",  # the tables of regimes read it: test_tables
    "results/report/index.html",
}


@pytest.fixture
def grid(own_micro_grid: Project) -> Project:
    return own_micro_grid


def test_every_reader_of_every_kind_of_file_refuses_a_changed_byte(grid: Project) -> None:
    environment = os.environ | {"PYTHONPATH": str(grid.root / "src")}
    status, printed = forked.call([str(CHANGED_FILES)], grid.root, environment)
    assert status == 0, printed
    begun = json.loads(printed.splitlines()[-1])
    assert set(begun["unread"]) == FOR_PEOPLE
    assert {rule for _, rule, _, _ in begun["replies"]} >= {"calibrate", "train_dpo", "make_tables", "build_report"}
    assert [case for case in begun["replies"] if f"{case[2]}: not the file that" not in case[3]] == []
    assert all(BEGAN in reply for reply in begun["unchanged"].values()), begun["unchanged"]


def test_a_refusal_says_what_to_do_and_that_does_it(grid: Project) -> None:
    pairs, made = grid.root / f"{SEED}/harvest/g2/k2/pairs.jsonl", grid.root / f"{SEED}/dpo/g2/k2/policy.json"
    before, expected = pairs.read_bytes(), made.read_bytes()
    made.unlink()
    target = ["--quiet", "rules", "--", str(made.relative_to(grid.root))]
    with changed(pairs):
        done = grid.snakemake("--cores", "1", *target)
        assert done.returncode == 1
        [said] = [line for line in done.stdout.splitlines() if line.startswith("train_dpo: ")]
        assert "pairs.jsonl: not the file that build_pairs/micro/seed0/g2/k2 recorded: sha256 " in said
        command = said.partition("snakemake ")[2].split()
        grid.build(*command, *target)
        assert pairs.read_bytes() == before
    assert made.read_bytes() == expected


def test_what_has_no_recorded_digest_is_read(grid: Project) -> None:
    """Results of 0.1.0 have none. The log has the number of files that were not compared."""
    shutil.rmtree(grid.results / "digests")
    assert grid.planned() == {}
    evaluation = f"{SEED}/dpo/g2/k2/eval/arithmetic.parquet"
    (grid.root / evaluation).unlink()
    grid.build("--quiet", "rules", "--", evaluation)
    log = grid.results / "logs/evaluate/micro/seed0/dpo/g2/k2/arithmetic.log"
    assert "files that this job reads have no recorded digest" in log.read_text()


def test_a_local_model_that_is_swapped_while_a_grid_runs_is_noticed(
    tmp_path: Path, micro_config: dict[str, Any]
) -> None:
    """Its files are outside of the results. The next plan has the jobs that read them."""
    config = micro_config | {"models": {"mine": {"source": "local", "path": "model"}}, "ablations": {}}
    project = Project.create(tmp_path / "g2d", config)
    shutil.copytree(tiny_policy().base, project.root / "model")
    evaluation = "results/mine/base/eval/word-problems.parquet"
    target = ["--quiet", "rules", "--", evaluation]
    project.build(*target)
    (project.root / evaluation).unlink()
    [record] = project.root.glob("results/mine/base/policy.json")
    for name in ("model.safetensors", "tokenizer_config.json"):
        with changed(project.root / "model" / name):
            # Without the rule that reads the model, Snakemake plans as it did before the change.
            done = project.snakemake("--cores", "1", "--allowed-rules", "evaluate", *target)
            assert done.returncode == 1
            assert f"evaluate: model/{name}: not the file that " in done.stdout
            assert "pretrained_model" in project.planned("--", evaluation)
    assert record.exists()
    project.build(*target)
