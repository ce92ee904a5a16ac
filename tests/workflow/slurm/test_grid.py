"""A small grid through the real executor: a warm-up is cancelled and a DPO preempted on the way, and both go on."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import yaml

from g2d.jobs.attempts import Attempt, read_attempts
from g2d.jobs.cost import read_cost
from g2d.jobs.files import sha256
from tests.workflow.conftest import Project
from tests.workflow.slurm.cluster import Cluster, squeue
from tests.workflow.slurm.conftest import SlurmProject, wait_for

GPU_RULES = {"calibrate", "train_grpo", "harvest_rollouts", "train_dpo", "evaluate"}


WARM_UP, DPO = "seed0/grpo/g2/k24", "seed0/dpo/g2/k24"
# Every rule that goes to the cluster, once: a job there is three starts of Python.
TARGET = f"results/micro/{DPO}/eval/arithmetic.parquet"
ADAPTER = "adapter/adapter_model.safetensors"


def training(project: SlurmProject, rule: str, folder: str) -> str | None:
    """Id of the Slurm job of a rule that has trained for some steps."""
    if not any((project.results / "micro" / folder / "work").glob("step-*")):
        return None
    jobs = [line.split("|") for line in squeue("--states=RUNNING", "--format=%i|%k")]
    return next((job for job, comment in jobs if comment.startswith(f"rule_{rule}_")), None)


@pytest.fixture(scope="module")
def grid(cluster: Cluster, create_project: Callable[..., SlurmProject], micro_config: dict[str, Any]) -> SlurmProject:
    cluster.wait_before_kill(600)  # however busy the machine, a trainer saves its step
    smaller = {
        "benchmarks": {"arithmetic": micro_config["benchmarks"]["arithmetic"]},
        "warmup": micro_config["warmup"] | {"steps": [24], "horizon": 30},
        "dpo": micro_config["dpo"] | {"max_steps": 90},
        "ablations": {},
    }
    project = create_project("grid", micro_config | smaller | {"checkpoints": {"every_steps": 1}})
    snakemake = project.start(TARGET)
    wait_for((project.results / "config.yaml").exists, snakemake)
    watching = project.watch_status("status.jsonl")
    job = wait_for(lambda: training(project, "train_grpo", WARM_UP), snakemake)
    subprocess.run(["scancel", job], check=True)
    wait_for(lambda: training(project, "train_dpo", DPO), snakemake)
    urgent = ["--partition=urgent", "--nodelist=gpu1,gpu2", "--nodes=2", "--gpus-per-node=2", "--time=60", "--mem=10"]
    subprocess.run(["sbatch", *urgent, "--wrap", "sleep 1"], cwd=project.root, check=True, capture_output=True)
    assert snakemake.wait() == 0, project.output()
    project.press_ctrl_c(watching)
    assert watching.wait() == 0
    return project


@pytest.fixture(scope="module")
def uninterrupted(grid: SlurmProject, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same grid, whose policies were trained again here, without a cluster and without a stop."""
    project = grid.copied(tmp_path_factory.mktemp("uninterrupted") / "g2d")
    config = yaml.safe_load((project.root / "config/config.yaml").read_text())
    project.configure(config | {"checkpoints": {}})  # they change no result, and writing one takes longer than a step
    shutil.rmtree(project.results / "micro/seed0")
    project.build("--quiet", "rules", "--", *(f"results/micro/{folder}/policy.json" for folder in (WARM_UP, DPO)))
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


def test_a_status_that_was_watched_meanwhile_said_no_untruth(grid: SlurmProject) -> None:
    looks = [json.loads(line) for line in (grid.root / "status.jsonl").read_text().splitlines()]
    finished = [look["jobs"]["finished"] for look in looks]
    assert finished == sorted(finished)
    assert {line for look in looks for line in look["unreadable"]} == set()
    for stage, folder, steps in (("train_grpo", WARM_UP, 24), ("train_dpo", DPO, 90)):
        job = f"results/micro/{folder}/cost"
        seen = [
            (entry["state"], entry["attempt"])
            for look in looks
            for entry in (*look["running"], *look["trouble"])
            if entry["job"] == job
        ]
        # Stopped is trouble until a second attempt begins. A look may come late, but sees nothing else.
        course = [("running", 1), ("stopped", 1), ("running", 2)]
        assert seen
        assert [*dict.fromkeys(seen)] == [state for state in course if state in seen], stage
        own = [entry for look in looks for entry in look["running"] if entry["job"] == job]
        assert {entry["steps"] for entry in own} <= {None, steps}
        assert {entry["slurm_job"] for entry in own} == {read.process.slurm_job for read in records(grid, stage)}
    spent = looks[-1]["spent"]
    assert sum(spent[f"{kind}_hours"] for kind in ("gpu", "cpu", "unknown")) > spent["in_vain_hours"] > 0


def records(project: SlurmProject, stage: str) -> list[Attempt]:
    return read_attempts(project.results / "attempts" / stage)


def test_the_cancelled_and_the_preempted_stage_ran_again(grid: SlurmProject) -> None:
    table = jobs(grid)
    assert sorted(table[table.rule == "train_grpo"].state) == ["CANCELLED", "COMPLETED"]
    assert len(table[table.rule == "train_dpo"]) == 2
    assert (table.state == "COMPLETED").sum() == len(table) - 2


@pytest.mark.parametrize(("rule", "folder", "steps"), [("train_grpo", WARM_UP, 24), ("train_dpo", DPO, 90)])
def test_the_second_attempt_goes_on_from_the_step_that_the_first_saved(
    grid: SlurmProject, rule: str, folder: str, steps: int
) -> None:
    attempts = read_attempts(grid.results / "attempts" / rule)
    assert [attempt.status for attempt in attempts] == ["stopped", "ok"]
    assert attempts[1].carried is not None
    assert 0 < attempts[1].carried.wall_s <= attempts[0].cost.wall_s
    assert read_cost(grid.results / "micro" / folder / "cost.json").own == attempts[1].bill
    [said] = [log.read_text() for log in (grid.root / f".snakemake/slurm_logs/rule_{rule}").rglob("*.log")]
    [stopped] = re.findall(rf"{rule}: stopped by SIGTERM at step (\d+) of {steps}, which is kept", said)
    [log] = [file.read_text() for file in (grid.results / "logs" / rule).rglob("*.log")]
    assert f"goes on from step {stopped}, where an earlier attempt ended\n" in log
    assert not (grid.results / "micro" / folder / "work").exists()


def test_the_result_is_that_of_a_run_without_a_cluster_and_without_a_stop(
    grid: SlurmProject, uninterrupted: Project, micro_grid: Project
) -> None:
    for file in (f"{WARM_UP}/{ADAPTER}", f"{WARM_UP}/checkpoint/optimizer.pt", f"{DPO}/{ADAPTER}"):
        assert sha256(grid.results / "micro" / file) == sha256(uninterrupted.results / "micro" / file), file
    harvest, again = (
        pd.read_parquet(project.results / "micro/seed0/harvest/g2/k24/rollouts.parquet")
        for project in (grid, uninterrupted)
    )
    assert harvest.completion_text.equals(again.completion_text)
    weights = "micro/base/model/model.safetensors"
    assert sha256(grid.results / weights) == sha256(micro_grid.results / weights)


def test_a_second_run_finds_nothing_to_do(grid: SlurmProject) -> None:
    assert grid.planned("--profile", "slurm", TARGET) == {}
