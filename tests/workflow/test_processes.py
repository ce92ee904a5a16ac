"""`training: {processes: 2}` on the micro grid: what is finished stays, and what is new is trained by two processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies import read_policy
from tests.workflow.conftest import Project, copy_of_micro

SEED = "results/micro/seed0"


@dataclass(frozen=True)
class InTwoProcesses:
    """The finished grid with K=3, which two processes trained, and the GPUs that each of its jobs planned."""

    project: Project
    gpus: dict[str, int]

    def of(self, method: str, k: int) -> Path:
        return self.project.root / SEED / method / f"g2/k{k}"


def with_two(config: dict[str, Any]) -> dict[str, Any]:
    return config | {"training": {"processes": 2}}


@pytest.fixture(scope="module")
def grid(micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> InTwoProcesses:
    project = copy_of_micro(micro_config, tmp_path_factory.mktemp("two") / "g2d")
    project.configure(with_two(micro_config) | {"warmup": micro_config["warmup"] | {"steps": [0, 2, 3, 4]}})
    target = f"{SEED}/dpo/g2/k3/policy.json"
    gpus = {job["rule"]: job["gpus"] for job in project.planned_jobs("--cores", "2", target)}
    # Somebody else's launcher.
    done = project.snakemake("--cores", "2", target, WORLD_SIZE="3", RANK="2", LOCAL_RANK="2")
    assert done.returncode == 0, done.stdout
    return InTwoProcesses(project, gpus)


def test_the_number_of_processes_makes_nothing_stale(own_micro_grid: Project, micro_config: dict[str, Any]) -> None:
    own_micro_grid.configure(with_two(micro_config))
    assert own_micro_grid.planned() == {}


def test_only_trainings_ask_for_a_gpu_per_process(grid: InTwoProcesses) -> None:
    assert grid.gpus == {
        "load_problems": 0,
        "embedded_model": 0,
        "calibrate": 1,
        "select_training_set": 0,
        "train_grpo": 2,
        "harvest_rollouts": 1,
        "build_pairs": 0,
        "train_dpo": 2,
    }


def test_two_processes_continue_the_checkpoint_of_one(grid: InTwoProcesses) -> None:
    rollouts = pd.read_parquet(grid.of("grpo", 3) / "rollouts.parquet")
    assert rollouts.groupby("step").size().to_dict() == {3: 16}
    by_one = pd.read_parquet(grid.of("grpo", 4) / "rollouts.parquet").query("step == 3")
    assert rollouts["problem_id"].tolist() == by_one["problem_id"].tolist()
    assert read_json(grid.of("grpo", 3) / "checkpoint/manifest.json")["step"] == 3


@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_two_processes_log_every_step_once(grid: InTwoProcesses, method: str) -> None:
    rows = (grid.of(method, 3) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_a_finished_training_leaves_no_work_folder(grid: InTwoProcesses, method: str) -> None:
    assert not (grid.of(method, 3) / "work").exists()


@pytest.mark.parametrize("rule", ["train_grpo", "train_dpo"])
def test_the_log_names_variables_of_another_launcher(grid: InTwoProcesses, rule: str) -> None:
    """The second process has a log of its own."""
    [of_second] = (grid.project.results / f"logs/{rule}").rglob("k3.rank1.log")
    assert "WORLD_SIZE=3" in of_second.with_name("k3.log").read_text()


@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_a_policy_of_two_processes_has_the_settings_of_one(grid: InTwoProcesses, method: str) -> None:
    by_one = read_policy(grid.of(method, 4) / "policy.json")
    by_two = read_policy(grid.of(method, 3) / "policy.json")
    assert by_two.settings.keys() == by_one.settings.keys()
    assert by_two.weights_sha256 != by_one.weights_sha256


@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_all_cores_of_a_machine_are_one_device(grid: InTwoProcesses, method: str) -> None:
    cost = read_cost(grid.of(method, 3) / "cost.json").own
    assert (cost.device, cost.devices) == ("cpu", 1)
