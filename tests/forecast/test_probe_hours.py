"""Device-hours of the rest of the grid after a probe, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from g2d.advice.words import hours_words
from g2d.experiment.config import Config, load
from g2d.experiment.keys import HarvestKey
from g2d.forecast.devices import CARD, CORE
from g2d.forecast.hours import gpu_job
from g2d.forecast.probe_hours import Rates, hours_advice, rates, remaining_jobs
from g2d.graph.job import Job
from g2d.jobs.cost import Cost, CostFile
from tests.experiment.test_config import MINIMAL


def small(**changes: Any) -> Config:
    settings = {"seeds": [0, 1], "warmup": {"steps": [0, 10, 30]}, "training_set": {"n": 100}}
    return load(MINIMAL | settings | changes)


COST = Cost("job", "draw_probe", 1.0, 1.0, 1, "NVIDIA H100", 1.0, 0, 0)


def bills() -> dict[HarvestKey, CostFile]:
    """Start-up 2 s and 1 ms per token; a step of warm-up takes 3 s."""

    def drawn(job: str, stage: str, tokens: int) -> Cost:
        return replace(COST, job=job, stage=stage, tokens_generated=tokens, device_s=2 + tokens / 1000)

    calibrated = drawn("calibration", "calibrate", 10_000)
    steps = [replace(COST, job=f"grpo/{k}", stage="train_grpo", device_s=s) for k, s in ((10, 30.0), (30, 60.0))]
    return {
        HarvestKey("demo", 0, 0, 0): CostFile(drawn("k0", "draw_probe", 400), (calibrated,)),
        HarvestKey("demo", 2, 10, 0): CostFile(drawn("k10", "draw_probe", 480), (calibrated, steps[0])),
        HarvestKey("demo", 2, 30, 0): CostFile(drawn("k30", "draw_probe", 560), (calibrated, *steps)),
    }


def steps_of(config: Config, jobs: Sequence[Job]) -> list[float]:
    """Steps of every training, of 16 completions each."""
    return [gpu_job(config, job).units / 16 for job in jobs]


def test_rates_come_from_the_bills_of_calibration_and_probe() -> None:
    measured = rates(small(), "demo", bills(), n_probed=10)
    assert measured.seconds_per_completion == pytest.approx(90 / 30 / 16)
    assert (measured.start_up, measured.seconds_per_token) == pytest.approx((2, 0.001))
    assert measured.tokens == {(0, 0): 40, (2, 10): 48, (2, 30): 56}
    assert measured.tokens_per_completion == pytest.approx(48 / 8)
    assert measured.harvested((4, 30)) == pytest.approx(48)


def test_without_a_gpu_hours_are_of_a_core() -> None:
    """Measured ones and guessed ones; a process of several threads took more CPU seconds than device seconds."""

    def on_cpu(cost: Cost) -> Cost:
        return replace(cost, device="cpu", cpu_s=2 * cost.device_s)

    on_card = bills()
    on_cores = {key: CostFile(on_cpu(bill.own), tuple(map(on_cpu, bill.ancestry))) for key, bill in on_card.items()}
    config = small(models={"demo": {"source": "hub", "id": "a/b", "revision": "a" * 40}})
    of_card, of_core = (rates(config, "demo", measured, n_probed=10) for measured in (on_card, on_cores))
    assert (of_card.device, of_core.device) == (CARD, CORE)
    assert of_core.seconds_per_token == pytest.approx(2 * of_card.seconds_per_token)
    assert of_core.seconds_per_completion == pytest.approx(2 * (of_card.seconds_per_completion or 0))
    tables = [hours_advice(config, "demo", measured, None, {"held-out": 50}) for measured in (of_card, of_core)]
    card, core = (table.set_index("stage").device_hours for table in tables)
    assert core["evaluate"] == pytest.approx(2 * card["evaluate"])
    assert core["train_dpo"] > 10 * card["train_dpo"]  # guessed: a core is no H100
    assert hours_words(tables[1], CORE).startswith("CPU hours")


def test_a_rate_is_never_negative() -> None:
    """Where the larger job was the faster one, a line would promise jobs that take less than no time."""
    slow = {"device_s": 20.0, "tokens_generated": 10}
    fast = {key: replace(bill, own=replace(bill.own, **slow)) for key, bill in bills().items()}
    measured = rates(small(), "demo", fast, n_probed=10)
    assert measured.start_up >= 0 and measured.seconds_per_token >= 0 and measured.generation(1000, 1) > 0


def test_the_rest_of_the_grid_is_what_the_probe_has_not_made() -> None:
    config = small(baselines={"grpo_group_sizes": [2, 4]}, ablations={"ipo": {"steps": [10], "dpo": {"loss": "ipo"}}})
    jobs = remaining_jobs(config, "demo", None)
    # Steps of the other seed's chain, 10 and 20, and of the baseline with G=4, 30 with both seeds.
    assert sorted(steps_of(config, jobs["train_grpo"])) == [10, 20, 30, 30]
    assert len(jobs["harvest_rollouts"]) == 3 * 2
    assert len(jobs["train_dpo"]) == 3 * 2 + 2
    assert len(jobs["evaluate"]) == 1 + 3 * 2 + 2 * 2 + 2
    alone = remaining_jobs(config, "demo", (2, 10))
    assert steps_of(config, alone["train_grpo"]) == [10]
    numbers = {stage: len(of_stage) for stage, of_stage in alone.items()}
    assert numbers == {"train_grpo": 1, "harvest_rollouts": 2, "train_dpo": 2, "evaluate": 1 + 2}
    assert sorted(steps_of(config, remaining_jobs(config, "demo", (2, 30))["train_grpo"])) == [10, 20]
    separate = small(warmup={"steps": [0, 10, 30], "schedule": "per_k"})
    assert steps_of(separate, remaining_jobs(separate, "demo", (2, 30))["train_grpo"]) == [30]
    assert remaining_jobs(config, "demo", (0, 0))["train_grpo"] == []


def test_an_ablation_with_another_warmup_is_counted() -> None:
    other = {"warmup": {"mask_truncated": True}, "steps": [10, 30], "policies": ["dpo", "grpo"]}
    config = small(baselines={"grpo_group_sizes": [2]}, ablations={"masked": other})
    jobs = remaining_jobs(config, "demo", None)
    assert sorted(steps_of(config, jobs["train_grpo"])) == [10, 10, 10, 20, 20, 20]
    assert len(jobs["harvest_rollouts"]) == 3 * 2 + 2 * 2
    assert len(jobs["train_dpo"]) == 3 * 2 + 2 * 2
    alone = remaining_jobs(small(ablations={"masked": other | {"policies": ["grpo"], "steps": "all"}}), "demo", None)
    assert len(alone["harvest_rollouts"]) == 3 * 2
    assert len(alone["train_grpo"]) == 2 + 2 * 2 + 2  # with the baseline at G=4; K=0 has no step and no job


def test_an_early_stopping_warmup_counts_with_all_its_steps() -> None:
    auto = {"warmup": {"steps": [0, 10, 30], "auto": {"every": 5, "prompts": 50}}}
    plain, more = (remaining_jobs(small(**keys), "demo", None) for keys in ({"warmup": {"steps": [0, 10, 30]}}, auto))
    added = {stage: len(more[stage]) - len(plain[stage]) for stage in plain}
    assert added == {"train_grpo": 2, "harvest_rollouts": 2, "train_dpo": 2, "evaluate": 2}
    added_jobs = [job for job in more["train_grpo"] if job.rule == "train_grpo_auto"]
    assert steps_of(small(**auto), added_jobs) == [30, 30]


def test_an_entry_that_is_trained_on_fresh_rollouts_counts_its_own() -> None:
    """Two seeds, updates 1 to 5 and 6 to 20 of 8 prompts with 4 rollouts each."""
    online = {"regime": "semi_online_dpo", "steps": [5, 20], "prompts_per_update": 8, "responses": 4}
    config = small(regimes={"online": online})
    jobs = remaining_jobs(config, "demo", None)
    plain = remaining_jobs(small(), "demo", None)
    assert sorted(steps_of(config, jobs["train_semi_online_dpo"])) == [10, 10, 30, 30]
    added = {stage: len(jobs[stage]) - len(of_stage) for stage, of_stage in plain.items()}
    assert added == {"train_grpo": 0, "harvest_rollouts": 0, "train_dpo": 0, "evaluate": 4}
    assert "train_semi_online_dpo" not in remaining_jobs(config, "demo", (2, 10))
    hub = {"demo": {"source": "hub", "id": "a/b", "revision": "a" * 40}}
    measured = rates(config, "demo", bills(), 10)
    # 7.6 billion parameters: updates of 32 completions of 1024 tokens, drawn together; prompts have 256.
    update = 1024 * (0.07 + 15.2e9 / 3e12) + 8 * 7.6e9 * 32 * 1280 / 3.5e14 + 1
    for models, hours in (({}, None), ({"models": hub}, (4 * 30 + 40 * update) / 3600)):
        table = hours_advice(small(regimes={"online": online}, **models), "demo", measured, None, {"held-out": 50})
        row = table[table["stage"] == "train_semi_online_dpo"].iloc[0]
        assert row["n_jobs"] == 4
        assert pd.isna(row["device_hours"]) if hours is None else row["device_hours"] == pytest.approx(hours)


def test_hours_worked_out_by_hand() -> None:
    measured = Rates(3.0 / 16, 2.0, 0.001, {(0, 0): 40.0, (2, 10): 48.0, (2, 30): 56.0}, 6.0)
    config = small(baselines={"grpo_group_sizes": [2]})
    table = hours_advice(config, "demo", measured, (2, 10), {"held-out": 50}).set_index(["scope", "stage"])
    hours = table["device_hours"] * 3600
    assert hours["grid", "train_grpo"] == pytest.approx(3 * 30)
    assert hours["grid", "harvest_rollouts"] == pytest.approx(2 * (3 * 2 + 0.1 * (40 + 48 + 56)))
    assert hours["grid", "evaluate"] == pytest.approx(9 * (2 + 50 * 6 / 1000))
    assert hours["advised K", "train_grpo"] == pytest.approx(3 * 10)
    assert hours["advised K", "harvest_rollouts"] == pytest.approx(2 * (2 + 4.8))
    # There is no measured rate of DPO for a local model; for a pretrained one the guess has 150 pairs of 512 tokens.
    assert pd.isna(hours["grid", "train_dpo"])
    assert table.loc[("grid", "train_dpo"), "source"] == "not measured yet"
    assert "6 train_dpo, which was not measured" in hours_words(table.reset_index())
    hub = {"demo": {"source": "hub", "id": "a/b", "revision": "a" * 40}}
    pretrained = hours_advice(small(models=hub), "demo", measured, None, {"held-out": 50})
    row = pretrained[pretrained["stage"] == "train_dpo"].iloc[0]
    dpo = 30 + 8 * 7.6e9 * 2 * 150 * 512 / 3.5e14
    assert (row["device_hours"], row["source"]) == (pytest.approx(6 * dpo / 3600), "guess")
    assert set(pretrained["scope"]) == {"grid"}


def test_steps_of_so_many_prompts_cost_more_where_groups_are_larger() -> None:
    warmup = {"steps": [0, 10], "prompts_per_step": 8}
    baselines = {"grpo_group_sizes": [2, 4]}
    rate = rates(small(warmup=warmup), "demo", {key: bill for key, bill in bills().items() if key.k <= 10}, 10)
    assert rate.seconds_per_completion == pytest.approx(30 / 10 / 16)
    config = small(warmup=warmup, baselines=baselines)
    jobs = remaining_jobs(config, "demo", None)["train_grpo"]
    steps = sorted(zip([job.wildcards.g for job in jobs], steps_of(config, jobs), strict=True))
    assert steps == [("2", 10), ("4", 20), ("4", 20)]
