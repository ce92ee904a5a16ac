"""`training: {processes: 2}` on the micro grid: what is finished stays, and what is new is trained by two processes."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies import read_policy
from tests.workflow.conftest import Project

SEED = "results/micro/seed0"


def test_a_finished_grid_continues_with_two_processes(
    own_micro_grid: Project, micro_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, two = own_micro_grid, micro_config | {"training": {"processes": 2}}
    grid.configure(two)
    assert grid.planned() == {}
    grid.configure(two | {"warmup": micro_config["warmup"] | {"steps": [0, 2, 3, 4]}})
    new = [f"{SEED}/dpo/g2/k3/policy.json"]
    gpus = {job["rule"]: job["gpus"] for job in grid.planned_jobs("--cores", "2", *new)}
    assert [gpus[rule] for rule in ("train_grpo", "harvest_rollouts", "build_pairs", "train_dpo")] == [2, 1, 0, 2]
    for name, value in {"WORLD_SIZE": "3", "RANK": "2", "LOCAL_RANK": "2"}.items():  # somebody else's launcher's
        monkeypatch.setenv(name, value)
    grid.build(*new)

    rollouts = pd.read_parquet(grid.root / SEED / "grpo/g2/k3/rollouts.parquet")
    assert rollouts.groupby("step").size().to_dict() == {3: 16}  # the step after the checkpoint of K=2, by one process
    same = pd.read_parquet(grid.root / SEED / "grpo/g2/k4/rollouts.parquet").query("step == 3")
    assert rollouts["problem_id"].tolist() == same["problem_id"].tolist()
    for name, log in (("grpo", "train_grpo"), ("dpo", "train_dpo")):
        folder = grid.root / SEED / name / "g2/k3"
        assert not (folder / "work").exists()
        steps = [json.loads(row)["step"] for row in (folder / "metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(1, len(steps) + 1))
        [of_second] = (grid.results / f"logs/{log}").rglob("k3.rank1.log")
        assert "WORLD_SIZE=3" in of_second.with_name("k3.log").read_text()
        before = read_policy(grid.root / SEED / name / "g2/k4/policy.json")
        policy = read_policy(folder / "policy.json")
        assert policy.settings.keys() == before.settings.keys()
        assert policy.weights_sha256 != before.weights_sha256
        bill = read_cost(folder / "cost.json").own
        assert (bill.device, bill.devices) == ("cpu", 1)  # all cores of a machine are one device
    assert read_json(grid.root / SEED / "grpo/g2/k3/checkpoint/manifest.json")["step"] == 3
