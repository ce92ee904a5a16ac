"""A small grid through the real executor, with a warm-up that is cancelled and a DPO that is preempted on the way."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from g2d.policies import read_policy
from tests.workflow.conftest import Project
from tests.workflow.slurm.cluster import squeue
from tests.workflow.slurm.conftest import SlurmProject, wait_for

GPU_RULES = {"calibrate", "train_grpo", "harvest_rollouts", "train_dpo", "evaluate"}


def at_work(project: SlurmProject, rule: str) -> str | None:
    """Id of the Slurm job of a rule whose script has begun, which the rule's log tells."""
    jobs = [line.split("|") for line in squeue("--states=RUNNING", "--format=%i|%k")]
    begun = any((project.results / "logs" / rule).rglob("*.log"))
    return next((job for job, comment in jobs if begun and comment.startswith(f"rule_{rule}_")), None)


@pytest.fixture(scope="module")
def grid(create_project: Callable[..., SlurmProject], micro_config: dict[str, Any]) -> SlurmProject:
    smaller = {
        "benchmarks": {"arithmetic": micro_config["benchmarks"]["arithmetic"]},
        "warmup": micro_config["warmup"] | {"steps": [2]},
        "ablations": {},
        "baselines": {"grpo_group_sizes": [2]},
    }
    project = create_project("grid", micro_config | smaller)
    snakemake = project.start()
    job = wait_for(lambda: at_work(project, "train_grpo"), snakemake)
    subprocess.run(["scancel", job], check=True)
    wait_for(lambda: at_work(project, "train_dpo"), snakemake)
    urgent = ["--partition=urgent", "--nodelist=gpu1,gpu2", "--nodes=2", "--gpus-per-node=2", "--time=1", "--mem=10"]
    subprocess.run(["sbatch", *urgent, "--wrap", "sleep 1"], cwd=project.root, check=True, capture_output=True)
    assert snakemake.wait() == 0, project.output()
    return project


def jobs(project: SlurmProject) -> pd.DataFrame:
    """Every Slurm job of the project: rule, state, partition, GPUs."""
    lines = squeue("--states=all", "--Format=Comment:90,State:20,Partition:20,tres-per-job:40,WorkDir:200")
    ours = [line for line in lines if line.startswith("rule_") and line.rstrip().endswith(str(project.root))]
    rows = [line.split() for line in ours]
    frame = pd.DataFrame([row[:4] for row in rows], columns=["comment", "state", "partition", "tres"])
    frame["rule"] = frame.comment.str.extract(r"rule_(.*?)(?:_wildcards|$)")[0]
    frame["gpus"] = frame.tres.map({"gres:gpu:h100:1": 1, "N/A": 0})
    return frame


def test_rules_that_need_a_gpu_get_one_and_the_others_get_none(grid: SlurmProject) -> None:
    table = jobs(grid)
    assert set(table[table.gpus > 0].rule) == GPU_RULES
    assert set(table.rule) - GPU_RULES == {"scratch_model"}  # the other rules run where Snakemake runs
    assert set(table.gpus) == {0, 1}
    assert (table.partition == table.gpus.map({0: "cpu", 1: "gpu"})).all()


def test_the_cancelled_and_the_preempted_stage_ran_again(grid: SlurmProject) -> None:
    table = jobs(grid)
    assert sorted(table[table.rule == "train_grpo"].state) == ["CANCELLED", "COMPLETED"]
    assert len(table[table.rule == "train_dpo"]) == 2
    assert (table.state == "COMPLETED").sum() == len(table) - 2


def test_the_result_is_that_of_a_run_without_a_cluster(grid: SlurmProject, micro_grid: Project) -> None:
    for folder in ("base", "seed0/grpo/g2/k2", "seed0/dpo/g2/k2"):
        ours, theirs = (read_policy(project.results / f"micro/{folder}/policy.json") for project in (grid, micro_grid))
        assert ours.weights_sha256 == theirs.weights_sha256, folder
    ours, theirs = (
        pd.read_parquet(project.results / "micro/seed0/harvest/g2/k2/rollouts.parquet")
        for project in (grid, micro_grid)
    )
    assert ours.completion_text.equals(theirs.completion_text)


def test_a_second_run_finds_nothing_to_do(grid: SlurmProject) -> None:
    assert grid.planned("--profile", "slurm") == {}
