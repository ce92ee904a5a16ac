"""A small grid on Slurm: a warm-up is cancelled and a DPO preempted, and both resume."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest
import yaml

from g2d.jobs.attempts import JobAttempt
from g2d.jobs.cost import merge_costs, read_cost
from g2d.jobs.files import sha256
from tests.attempts import read_attempts
from tests.workflow.as_python import HEAVY
from tests.workflow.conftest import Project
from tests.workflow.slurm.cluster import Cluster, squeue
from tests.workflow.slurm.conftest import SlurmProject, wait_for

GPU_RULES = {"calibrate", "train_grpo", "harvest_rollouts", "train_dpo", "evaluate"}
WARM_UP = "seed0/grpo/g2/k6"
HARVEST = "seed0/harvest/g2/k6"
DPO = "seed0/dpo/g2/k6"
# Both trainings: rule, folder, gradient steps.
TRAININGS = [("train_grpo", WARM_UP, 6), ("train_dpo", DPO, 10)]
# Every rule that goes to the cluster, once: a job there is two starts of Snakemake and a script.
TARGET = f"results/micro/{DPO}/eval/arithmetic.parquet"
ADAPTER = "adapter/adapter_model.safetensors"


# After its first checkpoint a training on the cluster waits for SIGTERM or for a file.
HELD = """

import os, signal, time
_add = Checkpoints.add

def _add_and_wait(self, draft, step):
    _add(self, draft, step)
    job = os.environ.get("SLURM_JOB_ID")
    while job and not (signal.getsignal(signal.SIGTERM) or os.path.exists(f"go-on-{job}")):
        time.sleep(0.1)

Checkpoints.add = _add_and_wait
"""


def training(project: SlurmProject, rule: str, folder: str, other_than: str = "") -> str | None:
    """Id of the Slurm job of a rule that has saved a step and of which the status that is watched has said so."""
    if not any((project.results / "micro" / folder / "work").glob("step-*")):
        return None
    seen = set()
    for look in looks(project):
        seen.update(entry["slurm_job"] for entry in look["attempted"] if entry["state"] == "running")
    for line in squeue("--states=RUNNING", "--format=%i|%k"):
        job, comment = line.split("|")
        if comment.startswith(f"rule_{rule}_") and job != other_than:
            return job if job in seen else None
    return None


def looks(project: SlurmProject) -> list[dict[str, Any]]:
    """Output of watch.py, one record per look."""
    *lines, _unfinished = (project.root / "status.jsonl").read_text().split("\n")
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def grid(cluster: Cluster, create_project: Callable[..., SlurmProject], micro_config: dict[str, Any]) -> SlurmProject:
    cluster.wait_before_kill(600)  # however busy the machine, a trainer saves its step
    smaller = {
        "benchmarks": {"arithmetic": micro_config["benchmarks"]["arithmetic"]},
        "warmup": micro_config["warmup"] | {"steps": [6], "horizon": 8},
        "dpo": micro_config["dpo"] | {"max_steps": 10},
        "ablations": {},
    }
    project = create_project("grid", micro_config | smaller | {"checkpoints": {"every_minutes": 1e-6}})
    project.fork_jobs(HEAVY)
    with open(project.root / "src/g2d/regimes/common/checkpoints.py", "a") as file:
        file.write(HELD)
    snakemake = project.start(TARGET)
    wait_for((project.results / "config.yaml").exists, snakemake)
    watching = project.watch_status("status.jsonl")
    cancelled = wait_for(partial(training, project, "train_grpo", WARM_UP), snakemake)
    subprocess.run(["scancel", cancelled], check=True, capture_output=True)
    second = wait_for(partial(training, project, "train_grpo", WARM_UP, other_than=cancelled), snakemake)
    (project.root / f"go-on-{second}").touch()
    preempted = wait_for(partial(training, project, "train_dpo", DPO), snakemake)
    urgent = ["--partition=urgent", "--nodelist=gpu1,gpu2", "--nodes=2", "--gpus-per-node=2", "--time=60", "--mem=10"]
    subprocess.run(["sbatch", *urgent, "--wrap", "sleep 1"], cwd=project.root, check=True, capture_output=True)
    second = wait_for(partial(training, project, "train_dpo", DPO, other_than=preempted), snakemake)
    (project.root / f"go-on-{second}").touch()
    assert snakemake.wait() == 0, project.output()
    project.press_ctrl_c(watching)
    assert watching.wait() == 0
    return project


@pytest.fixture(scope="module")
def uninterrupted(grid: SlurmProject, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the grid with policies that were trained without a cluster and without a stop."""
    project = grid.copied(tmp_path_factory.mktemp("uninterrupted") / "g2d")
    config = yaml.safe_load((project.root / "config/config.yaml").read_text())
    project.configure(config | {"checkpoints": {}})  # they change no result, and writing one takes longer than a step
    shutil.rmtree(project.results / "micro/seed0")
    trained = [f"results/micro/{WARM_UP}/policy.json", f"results/micro/{DPO}/policy.json"]
    project.build("--quiet", "rules", "--", *trained)
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


def test_rules_that_need_a_gpu_get_one_and_the_others_are_no_slurm_jobs(grid: SlurmProject) -> None:
    table = jobs(grid)
    assert set(table.rule) == GPU_RULES  # the other rules run where Snakemake runs
    assert set(table.gpus) == {1}
    assert set(table.partition) == {"gpu"}


def test_a_watched_status_shows_only_true_states(grid: SlurmProject) -> None:
    seen_looks = looks(grid)
    finished = [look["finished"] for look in seen_looks]
    assert finished == sorted(finished)
    for look in seen_looks:
        assert look["unreadable"] == []
    for stage, folder, steps in TRAININGS:
        entries = []
        for look in seen_looks:
            entries += [entry for entry in look["attempted"] if entry["job"] == f"results/micro/{folder}/cost"]
        seen = [(entry["state"], entry["attempt"]) for entry in entries]
        # Stopped is trouble until a second attempt begins. A look may miss a state, but no other state is possible.
        course = [("running", 1), ("stopped", 1), ("running", 2)]
        assert seen
        assert [*dict.fromkeys(seen)] == [state for state in course if state in seen], stage
        running = [entry for entry in entries if entry["state"] == "running"]
        assert {entry["steps"] for entry in running} <= {None, steps}
        assert {entry["slurm_job"] for entry in running} == {read.process.slurm_job for read in records(grid, stage)}
    assert seen_looks[-1]["device_hours"] > 0


def records(project: SlurmProject, stage: str) -> list[JobAttempt]:
    return read_attempts(project.results / "attempts" / stage)


def test_the_cancelled_and_the_preempted_stage_ran_again(grid: SlurmProject) -> None:
    table = jobs(grid)
    assert sorted(table[table.rule == "train_grpo"].state) == ["CANCELLED", "COMPLETED"]
    assert len(table[table.rule == "train_dpo"]) == 2
    assert (table.state == "COMPLETED").sum() == len(table) - 2


@pytest.mark.parametrize(("rule", "folder", "steps"), TRAININGS)
def test_the_second_attempt_resumes_at_the_saved_step(grid: SlurmProject, rule: str, folder: str, steps: int) -> None:
    attempts = read_attempts(grid.results / "attempts" / rule)
    assert [attempt.status for attempt in attempts] == ["stopped", "ok"]
    assert attempts[1].carried is not None
    assert 0 < attempts[1].carried.wall_s <= attempts[0].cost.wall_s
    assert read_cost(grid.results / "micro" / folder / "cost.json").own == merge_costs(
        attempts[1].carried, attempts[1].cost
    )
    [output] = [log.read_text() for log in (grid.root / f".snakemake/slurm_logs/rule_{rule}").rglob("*.log")]
    [stopped] = re.findall(rf"{rule}: stopped by SIGTERM at step (\d+) of {steps}, which is kept", output)
    [log] = [file.read_text() for file in (grid.results / "logs" / rule).rglob("*.log")]
    assert f"goes on from step {stopped}, where an earlier attempt ended\n" in log
    assert not (grid.results / "micro" / folder / "work").exists()


def test_the_result_equals_an_uninterrupted_local_run(
    grid: SlurmProject, uninterrupted: Project, micro_grid: Project
) -> None:
    for file in (f"{WARM_UP}/{ADAPTER}", f"{WARM_UP}/checkpoint/optimizer.pt", f"{DPO}/{ADAPTER}"):
        assert sha256(grid.results / "micro" / file) == sha256(uninterrupted.results / "micro" / file), file
    harvest = pd.read_parquet(grid.results / "micro" / HARVEST / "rollouts.parquet")
    again = pd.read_parquet(uninterrupted.results / "micro" / HARVEST / "rollouts.parquet")
    assert harvest.completion_text.equals(again.completion_text)
    weights = "micro/base/model/model.safetensors"
    assert sha256(grid.results / weights) == sha256(micro_grid.results / weights)


def test_a_second_run_plans_no_job(grid: SlurmProject) -> None:
    assert grid.planned("--profile", "slurm", TARGET) == {}
