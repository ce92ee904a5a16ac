"""Disk space of trainings, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.checks.load import load
from g2d.forecast.workloads import Disk, disk_use
from g2d.grid.grid import Grid
from g2d.memory.passes import ModelShape
from tests.configs import MINIMAL

FRESH = {"regime": "semi_online_dpo", "steps": [2, 4], "sync_every": 1}
GRID: dict[str, Any] = MINIMAL | {
    "seeds": [0, 1],
    "warmup": {"steps": [0, 2, 4]},
    "baselines": {"grpo_group_sizes": [2]},
    "regimes": {"fresh": FRESH, "rft": {"regime": "rft", "steps": [2]}},
}
POLICIES = 2 * (3 + 2 + 2 + 1)  # DPO at three K, GRPO and the entry at two, RFT at one


@pytest.mark.parametrize(("keep", "checkpoints"), [("all", 2 * (2 + 2)), ("last", 2 * (1 + 1))])
def test_policies_and_checkpoints_of_all_seeds(keep: str, checkpoints: int) -> None:
    """A checkpoint has weights, two averages, and the generating weights: 16 bytes per parameter."""
    config = load(GRID | {"lora": "none", "checkpoints": {"keep": keep}})
    use = disk_use(Grid(config), "demo", ModelShape(1000, 0, 1, 9, 2, trains_all=True))
    assert use == Disk(POLICIES, 2 * 1000, checkpoints, 16 * 1000)
    assert use.total == POLICIES * 2000 + checkpoints * 16_000


def test_only_adapters_are_kept_and_with_per_k_each_k_has_a_checkpoint() -> None:
    config = load(GRID | {"warmup": {"steps": [0, 2, 4], "schedule": "per_k"}, "regimes": {}} | KEPT_LAST)
    use = disk_use(Grid(config), "demo", ModelShape(1000, 50, 1, 9, 2))
    assert use == Disk(2 * (3 + 2), 4 * 50, 2 * 2, 12 * 50)


KEPT_LAST = {"checkpoints": {"keep": "last"}}
