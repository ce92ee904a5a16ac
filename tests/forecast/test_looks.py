"""Cost of the seeds of the next look, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from g2d.forecast.hours import next_cost
from g2d.jobs.cost import write_cost
from g2d.policies import Policy, write_policy
from g2d.regimes.grpo.keys import Warmup
from tests.forecast.test_hours import COST
from tests.race import race_config

LOOK = {"seeds": {"m/dpo/g2/k2": 3, "m/dpo/g2/k4": 3, "m/dpo/g0/k0": 2}, "next": {"m/dpo/g2/k2": 3, "m/dpo/g2/k4": 3}}


def billed(results: Path) -> None:
    """Write costs: one hour for a harvest, two for DPO, half for an evaluation, three for two steps of GRPO."""
    for stage, hours in (("harvest_rollouts", 1), ("train_dpo", 2), ("evaluate", 0.5)):
        write_cost(results / f"m/{stage}/cost.json", replace(COST, stage=stage, device_s=hours * 3600))
    folder = results / "m/seed1/grpo/g2/k2"
    folder.mkdir(parents=True)
    settings = {"warmup": Warmup().trajectory(2, 2)}
    write_policy(folder / "policy.json", Policy("p", "m", "grpo", "m0", 2, k=2, settings=settings))
    write_cost(folder / "cost.json", replace(COST, stage="train_grpo", device_s=3 * 3600))


def test_a_chain_of_warmups_is_paid_once(tmp_path: Path) -> None:
    """The third seed has two warm-ups, the second from the first, and for each K a harvest, DPO and an evaluation. All
    looks together may add a fourth seed."""
    billed(tmp_path)
    config = race_config(seeds={"looks": [2, 3, 4]})
    seed = 2 * 3 + 2 * (1 + 2 + 0.5)
    cost = next_cost(config, LOOK, tmp_path)
    assert cost == {"hours": pytest.approx(seed), "hours_at_most": pytest.approx(2 * seed)}


def test_costs_without_a_rate_are_unknown(tmp_path: Path) -> None:
    assert next_cost(race_config(), LOOK, tmp_path)["hours"] is None
    billed(tmp_path)
    assert next_cost(race_config(), LOOK, tmp_path)["hours"] == pytest.approx(13)
