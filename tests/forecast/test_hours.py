"""The estimate of hours uses measured rates, else published ones; without either there is no number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from safetensors.numpy import save_file

from g2d.checks.load import load, read
from g2d.forecast import guess as guesses
from g2d.forecast.devices import CARD, CORE, device_here
from g2d.forecast.guess import Work, core_seconds, guess, seconds
from g2d.forecast.hours import GpuJob, Line, Measured, estimate, finished_jobs, gpu_job, holds_device, report
from g2d.grid.grid import Grid
from g2d.grid.versions import EVALUATIONS
from g2d.jobs.cost import Cost, write_cost
from g2d.jobs.snakemake_jobs import PlannedJob
from g2d.policies import PolicyRecord, write_policy
from g2d.policies.model_keys import HubModel, LocalModel, parameters
from g2d.regimes.grpo.keys import Warmup
from tests.configs import CONFIG, MINIMAL, OPEN_ENDED, SMALL
from tests.open_ended import JUDGE

COST = Cost("job", "evaluate", 1800.0, 1.0, 1, "NVIDIA H100", 1800.0, 0, 0)


# Rows of one H100 80GB (docs/performance.md): work, parameters, engine, seconds. Completions had their whole length.
GRPO = Work(drawn=16, rows=16, length=384, trained=16, passes=4, updates=1)
DPO = Work(length=359, trained=32, passes=4)  # 16 pairs, 615 tokens a side
MEASURED = {
    "GRPO step, 0.5B, transformers": (GRPO, 0.49e9, "transformers", 25.4),
    "GRPO step, 0.5B, vLLM": (GRPO, 0.49e9, "vllm", 3.6),
    "GRPO step, 7B, transformers": (GRPO, 7.6e9, "transformers", 29.9),
    "GRPO step in one pass, 7B": (replace(GRPO, passes=1), 7.6e9, "transformers", 23.1),
    "DPO step, 0.5B": (DPO, 0.49e9, "transformers", 2.11),
    "DPO step in one pass, 0.5B": (replace(DPO, passes=1), 0.49e9, "transformers", 0.77),
    "DPO step, 7B": (DPO, 7.6e9, "transformers", 4.07),
    "DPO step in one pass, 7B": (replace(DPO, passes=1), 7.6e9, "transformers", 3.45),
    "64 rows, 0.5B, transformers": (Work(64, 64, 512), 0.49e9, "transformers", 64 * 512 / 864),
    "64 rows, 7B, transformers": (Work(64, 64, 512), 7.6e9, "transformers", 64 * 512 / 951),
    "64 rows, 0.5B, vLLM": (Work(64, 64, 512), 0.49e9, "vllm", 64 * 512 / 14_711),
    "256 rows, 0.5B, vLLM": (Work(256, 256, 512), 0.49e9, "vllm", 256 * 512 / 28_266),
}


@pytest.mark.parametrize(("work", "size", "engine", "measured"), MEASURED.values(), ids=MEASURED)
def test_guesses_are_within_a_factor_of_two_of_what_a_card_did(
    work: Work, size: float, engine: str, measured: float
) -> None:
    assert measured / 2 < seconds(work, size, engine) < measured * 2


def test_a_guess_for_a_core_is_within_a_factor_of_two_of_what_one_did() -> None:
    """A GRPO step of SmolLM2-135M, 2 prompts of 75 tokens with 8 completions of 20, on a core of 83 GFLOP/s."""
    step = Work(drawn=16, length=20, trained=16, group=8, shared=8, prompt=75)
    assert 9.4 / 2 < core_seconds(step, 134.5e6, 83e9) < 9.4 * 2


SMOLLM2 = "SmolLM2-135M-Q4_1"
# Mean CPU seconds of jobs of SmolLM2, planned and exploratory, on cores of 90 GFLOP/s: rule, output, units, seconds.
ON_CORES = {
    "calibrate": ("calibration/rollouts.parquet", 1, 20),
    "evaluate": ("base/eval/facts.parquet", 1, 48),
    "train_grpo": ("seed3/grpo/g8/k5/policy.json", 5 * 64, 108),
    "train_semi_online_dpo": ("seed3/online/g8/k15/policy.json", 15 * 64, 194),
    "harvest_rollouts": ("seed3/harvest/g0/k0/rollouts.parquet", 1, 92),
    "train_dpo": ("seed3/dpo/g0/k0/policy.json", 1, 270),
    "train_rft": ("seed3/rft/g0/k0/policy.json", 1, 183),
}


def planned(rule: str, output: str, **wildcards: str) -> PlannedJob:
    costs = [f"results/{output.removesuffix('.parquet')}.cost.json"] if rule in EVALUATIONS else []
    return PlannedJob(rule, wildcards, (f"results/{output}", *costs))


@pytest.mark.parametrize("rule", ON_CORES)
def test_guesses_for_a_core_are_within_a_factor_of_two_of_what_a_grid_took(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "core_operations", lambda: 90e9)
    monkeypatch.setattr(guesses, "parameters", lambda source: 134.5e6)
    output, units, measured = ON_CORES[rule]
    config = read(CONFIG / "smollm2.yaml", CONFIG / "overlays/smollm2_exploratory.yaml")
    job = gpu_job(Grid(config), planned(rule, f"{SMOLLM2}/{output}", model=SMOLLM2), CORE)
    assert job.guess is not None and job.units == units
    assert measured / 2 < 3600 * job.guess * job.units < measured * 2


def test_pairs_of_a_prompt_that_passes_share_cost_less_on_a_core() -> None:
    models = {"demo": {"source": "hub", "id": "a/b-1b", "revision": "a" * 40}}
    job = planned("train_dpo", "demo/seed0/dpo/g0/k0/policy.json", model="demo")
    shared = gpu_job(Grid(load(MINIMAL | {"models": models})), job, CORE).guess
    apart = load(MINIMAL | {"models": models, "training": {"shared_prompts": False}})
    assert 0 < shared < gpu_job(Grid(apart), job, CORE).guess


def test_without_a_card_hours_are_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device_here("transformers") is CORE
    assert device_here("transformers", elsewhere=True) is device_here("vllm") is CARD
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert device_here("transformers") is CARD


def test_jobs_on_the_other_kind_of_device_are_no_rates(tmp_path: Path) -> None:
    write_cost(tmp_path / "mine/a.cost.json", COST)
    write_cost(tmp_path / "mine/b.cost.json", replace(COST, device="cpu", cpu_s=7200.0))
    finished = finished_jobs(tmp_path, ["mine"])
    lines = [estimate([GpuJob("evaluate", "mine")], finished, device) for device in (CORE, CARD)]
    assert lines == [[Line("evaluate", 1, hours, "measured here (mine, n=1)")] for hours in (2.0, 0.5)]


def test_a_guess_worked_out_by_hand() -> None:
    """GRPO of config/small.yaml from K=100 to 200: 100 updates of 128 completions of 160 tokens, in passes of 64."""
    config = read(CONFIG / "small.yaml")
    model = "qwen2.5-0.5b-instruct"
    assert parameters(config.models[model]) == 0.5e9
    drawing = 100 * 160 * (0.003 + 128 * 2.5e-5 + 1e9 / 3e12)
    passes = 100 * 2 * 0.5  # their tokens would take 61 s
    grid = Grid(config)
    policy = grid.at(f"{model}/seed0/grpo/g8/k200")
    hours = guess(grid, "train_grpo", model, 100 * 128, policy)
    assert hours * 3600 == pytest.approx(60 + drawing + passes + 100)


def test_replies_to_open_ended_prompts_are_guessed_by_their_own_budget() -> None:
    def hours(tokens: int, samples: int) -> float:
        prompts = OPEN_ENDED | {"max_completion_length": tokens, "samples_per_prompt": samples}
        grid = Grid(load(SMALL | {"rewards": {"polite": JUDGE}, "open_ended": prompts}))
        return guess(grid, "sample_replies", next(iter(grid.runs)), 0, None)

    assert hours(512, 2) < hours(512, 8)
    assert hours(512, 2) < hours(2048, 2)


def test_the_size_of_a_model_is_in_its_files_or_its_name(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(2_000))
    named = {"x/Llama-3.1-8B-Instruct": 8e9, "x/Qwen2.5-0.5B": 0.5e9, "x/phi-4": 7.6e9, "x/2billion": 7.6e9}
    save_file({"a": np.zeros((20, 5), np.float32), "b": np.zeros(7, np.float16)}, tmp_path / "typed.safetensors")
    for name, size in named.items():
        assert parameters(HubModel(source="hub", id=name, revision="0" * 40)) == size
    assert parameters(LocalModel(source="local", path=str(tmp_path))) == 1_000 + 107
    assert parameters(LocalModel(source="local", path="models/mine-1.5b")) == 1.5e9


def test_an_early_stopping_warmup_costs_at_most_its_schedule(tmp_path: Path) -> None:
    (line,) = estimate([GpuJob("train_grpo_auto", "qwen", 1000 * 16, guess=0.001)], {})
    assert line.hours == pytest.approx(16)
    (reused,) = estimate([GpuJob("train_grpo", "qwen", 1000 * 16, at_most=True, guess=0.001)], {})
    assert reused == replace(line, stage="train_grpo")
    assert line.source == "at most; guess"
    assert "is for one H100 and within a factor of 3" in report([line])
    folder = tmp_path / "mine/seed0/auto/grpo/g2/k1000"
    folder.mkdir(parents=True)
    settings = {"warmup": Warmup().at(2, 1000).params()}
    stopped = PolicyRecord("p", "mine", "g", "m0", 2, k=150, settings=settings, statistics={"steps_trained": 250})
    write_policy(folder / "policy.json", stopped)
    write_cost(folder / "cost.json", replace(COST, stage="train_grpo_auto", device_s=7200.0))
    [measured] = finished_jobs(tmp_path, ["mine"])["train_grpo_auto", "mine"]
    assert (measured.units, measured.steps) == (250 * 16, 250)


def test_a_stage_without_a_rate_has_no_hours() -> None:
    lines = estimate([GpuJob("evaluate", "qwen")] * 3, {})
    assert lines == [Line("evaluate", 3, None, "not measured yet")]
    assert "0.0, and what is marked ?" in report(lines)
    assert report([]) == ""


def test_measured_rates_are_preferred_for_their_model() -> None:
    jobs = [GpuJob("train_dpo", "mine", guess=1.2), GpuJob("train_dpo", "other", guess=1.2)]
    took = [Measured(replace(COST, device_s=900.0)), Measured(replace(COST, device_s=2700.0))]
    mine, other = estimate(jobs, {("train_dpo", "mine"): took})
    assert (mine.hours, mine.source) == (0.5, "measured here (mine, n=2)")
    assert (other.hours, other.source) == (1.2, "guess")


def test_rates_are_read_from_bills_of_jobs_that_had_a_gpu(tmp_path: Path) -> None:
    folder = tmp_path / "mine/seed0/grpo/g4/k150"
    settings = {"warmup": Warmup(prompts_per_step=8).at(4, 150).params()}
    policy = PolicyRecord("p", "mine", "grpo", "m0", group_size=4, k=150, seed=0, continued_from=50, settings=settings)
    folder.mkdir(parents=True)
    write_policy(folder / "policy.json", policy)
    write_cost(folder / "cost.json", replace(COST, stage="train_grpo", device_s=7200.0))
    write_cost(tmp_path / "mine/base/eval/a.cost.json", COST)
    write_cost(tmp_path / "mine/base/eval/b.cost.json", replace(COST, device="cpu"))
    (tmp_path / "mine/broken.cost.json").write_text("{")
    foreign = tmp_path / "mine/seed1/grpo/g2/k150"  # no word on how large its steps were
    foreign.mkdir(parents=True)
    write_policy(foreign / "policy.json", replace(policy, settings={}))
    write_cost(foreign / "cost.json", replace(COST, stage="train_grpo"))
    finished = finished_jobs(tmp_path, ["mine", "absent"])
    assert finished.keys() == {("evaluate", "mine"), ("train_grpo", "mine")}
    [measured] = finished["train_grpo", "mine"]
    assert (measured.units, measured.steps) == (100 * 32, 100)
    work = GpuJob("train_grpo", "mine", 200 * 32)
    assert estimate([work], finished) == [Line("train_grpo", 1, 4.0, "measured here (mine, n=1)")]


def test_a_training_of_few_steps_is_no_measurement_for_a_longer_one() -> None:
    """Its rate is mostly its start."""
    mostly_start = Measured(replace(COST, device_s=3600.0), units=2 * 16, steps=2)
    finished = {("train_grpo", "mine"): [mostly_start]}
    alike, longer = (GpuJob("train_grpo", "mine", steps * 16, guess=0.001) for steps in (2, 100))
    assert estimate([alike], finished) == [Line("train_grpo", 1, 1.0, "measured here (mine, n=1)")]
    assert estimate([longer], finished) == [Line("train_grpo", 1, pytest.approx(1.6), "guess")]
    enough = {("train_grpo", "mine"): [mostly_start, replace(mostly_start, units=20 * 16, steps=20)]}
    assert estimate([longer], enough) == [Line("train_grpo", 1, pytest.approx(5.0), "measured here (mine, n=1)")]


def test_the_estimate_counts_the_completions_beyond_the_checkpoint() -> None:
    keys = {"seeds": [0], "models": {"big": {"source": "local", "path": "big"}}}
    for more in ({}, {"iterations": 2}):
        warmup = {"steps": [0, 2, 4, 6], "horizon": 8, **more}
        grid = Grid(load(MINIMAL | keys | {"warmup": warmup}))
        for k in (2, 6):
            job = planned("train_grpo", f"big/seed0/grpo/g2/k{k}/policy.json", model="big")
            assert gpu_job(grid, job) == GpuJob("train_grpo", "big", 2 * 16, at_most=bool(more), guess=ANY)


def test_a_harvest_that_is_judged_again_holds_no_device() -> None:
    keys = {"rewards": {"coin": {"reward": "random"}}, "ablations": {"control": {"steps": [0], "reward": "coin"}}}
    grid = Grid(load(MINIMAL | keys))
    at = {"model": "demo", "seed": "0", "g": "0", "k": "0"}
    again = planned("harvest_rollouts", "demo/seed0/control/harvest/g0/k0/rollouts.parquet", variant="control/", **at)
    own = planned("harvest_rollouts", "demo/seed0/harvest/g0/k0/rollouts.parquet", variant="", **at)
    assert not holds_device(grid, again)
    assert holds_device(grid, own)
