"""From wildcards to files and settings: what a job is made from, and what a finished one keeps."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from snakemake.iocontainers import Wildcards

from g2d.experiment.config import Config, load
from g2d.experiment.grid import policies
from g2d.experiment.plan import Plan
from g2d.experiment.prompt_counts import prompts_asked
from g2d.forecast.hours import GpuJob, gpu_job
from g2d.jobs.cost import Cost, write_cost
from g2d.jobs.files import write_text
from g2d.policies.policy import Policy, write_policy
from tests.experiment.test_config import MINIMAL

LOCAL = {"models": {"big": {"source": "local", "path": "big"}}}


def configured(**changes: Any) -> Config:
    return load(MINIMAL | {"seeds": [0], "warmup": {"steps": [0, 2, 4, 6], "horizon": 8}} | changes)


def at(k: int, **others: Any) -> Wildcards:
    values = {"model": "demo", "seed": "0", "g": "2" if k else "0", "k": str(k), "variant": "", "regime": "dpo"}
    return Wildcards(fromdict=values | others)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_at_k_0_the_harvested_policy_is_m0() -> None:
    plan = Plan(configured())
    assert plan.warmed_up(at(0)) == "results/demo/base"
    assert plan.warmed_up_cost(at(0)) == "results/demo/calibration/cost.json"
    base = ["results/demo/base/policy.json", "results/demo/base/model/model.safetensors"]
    assert plan.policy_files(at(0)) == base
    folder = "results/demo/seed0/grpo/g2/k4"
    warmed = [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"]
    assert plan.policy_files(at(4)) == [*warmed, *base]
    assert plan.policy_files(Wildcards(fromdict={"policy": "demo/seed0/grpo/g2/k4"})) == [*warmed, *base]
    assert plan.policy_files(Wildcards(fromdict={"policy": "demo/base"})) == base


def test_a_chain_continues_the_k_before_and_a_finished_k_the_one_it_really_had() -> None:
    plan = Plan(configured())
    assert plan.previous_checkpoint(at(6)) == ["results/demo/seed0/grpo/g2/k4/checkpoint"]
    before = "results/demo/calibration/cost.json"
    assert plan.previous_costs(at(6)) == [before, "results/demo/seed0/grpo/g2/k4/cost.json"]
    assert plan.previous_costs(at(2)) == [before]
    done = Policy("demo/seed0/grpo/g2/k6", "demo", "grpo", "m", continued_from=2, settings=plan.grpo_settings(at(6)))
    write_policy("results/demo/seed0/grpo/g2/k6/policy.json", done)
    assert plan.continued_from(at(6)) == 2
    other = Plan(configured(warmup={"steps": [0, 2, 4, 6], "horizon": 8, "learning_rate": 1e-3}))
    assert other.continued_from(at(6)) == 4  # what is there was trained otherwise, and so is trained again


@pytest.mark.parametrize(
    ("engine", "dropout", "ratio", "more"),
    [
        ("vllm", 0.05, "sampler", {"ratios": "without dropout"}),
        ("vllm", 0.05, "none", {}),
        ("vllm", 0, "sampler", {}),
        ("transformers", 0.05, "sampler", {"rollouts": "by g2d.rollouts"}),
        ("transformers", 0.05, "none", {"rollouts": "by g2d.rollouts"}),
        ("transformers", 0, "sampler", {"rollouts": "by g2d.rollouts"}),
    ],
)
def test_grpo_that_trl_drew_or_dropout_made_noise_of_is_trained_again_and_nothing_else(
    engine: str, dropout: float, ratio: str, more: dict[str, str]
) -> None:
    warmup = {"steps": [0, 2, 4, 6], "horizon": 8, "ratio": ratio}
    settings = Plan(configured(engine={"name": engine}, lora={"dropout": dropout}, warmup=warmup)).grpo_settings(at(6))
    others = {name: settings[name] for name in settings.keys() - {"warmup", "lora", "prompt"}}
    assert others == {"engine": engine} | more


@pytest.mark.parametrize(
    ("reward", "masked", "more"), [("taste", True, {"masked": "by rewards"}), ("taste", False, {}), ("coin", True, {})]
)
def test_masks_by_the_advantages_of_scalar_rewards_are_trained_again_and_no_others(
    reward: str, masked: bool, more: dict[str, str]
) -> None:
    rewards = {"taste": {"reward": "scratch_model"}, "coin": {"reward": "random"}}
    own = {"steps": [2], "reward": reward, "warmup": {"mask_uniform_groups": masked}}
    plan = Plan(configured(rewards=rewards, ablations={"own": own}, lora={"dropout": 0}, engine={"name": "vllm"}))
    settings = plan.grpo_settings(at(2, variant="own/"))
    assert settings["reward"]["reward"] == rewards[reward]["reward"]
    assert {name: settings[name] for name in settings.keys() - {"warmup", "lora", "prompt", "reward", "engine"}} == more


def test_a_record_that_cannot_be_read_is_told_before_snakemake_drops_it() -> None:
    told: list[Exception] = []
    write_text("results/demo/seed0/grpo/g2/k6/policy.json", "{")
    with pytest.raises(ValueError, match=r"policy\.json"):
        Plan(configured(), told.append).continued_from(at(6))
    assert len(told) == 1


def test_a_finished_file_keeps_its_number_of_shards() -> None:
    shard, cost = "results/{model}/h/{shard}-of-{shards}.parquet", "results/{model}/h/cost.json"
    files = partial(Plan(configured(engine={"shards": {"harvest": 2}})).shards, "harvest", shard, cost)
    assert files(at(0)) == ["results/demo/h/1-of-2.parquet", "results/demo/h/2-of-2.parquet"]
    assert files(at(0, shard="1")) == []  # a shard is not made from shards
    made_of = {number: f"results/demo/h/{number}-of-3" for number in (1, 2, 3)}
    for number, job in made_of.items():
        write_cost(f"shard{number}.json", Cost(job, "harvest_rollouts", 1, 1, 1, "cpu", 1, 1, 1))
    merged = Cost("h", "harvest_rollouts", 1, 1, 1, "cpu", 1, 1, 1)
    write_cost("results/demo/h/cost.json", merged, [f"shard{number}.json" for number in made_of])
    assert files(at(0)) == [f"{job}.parquet" for job in made_of.values()]


def test_pairs_of_a_control_are_matched_to_a_k_or_to_the_fewest() -> None:
    ablations = {
        "n-matched": {"steps": [0], "dpo": {"match_pairs_to": 4}},
        "fewest": {"steps": [0], "dpo": {"match_pairs_to": "min", "pairs_per_prompt": 3}},
        "longer": {"steps": [4], "warmup": {"learning_rate": 1e-3}, "dpo": {"match_pairs_to": 4}},
    }
    plan = Plan(configured(ablations=ablations))
    folder = "results/demo/seed0/harvest"
    assert plan.harvested(at(0))["matched"] == []
    assert plan.harvested(at(0, regime="n-matched"))["matched"] == [f"{folder}/g2/k4/pairs.jsonl"]
    own = [f"{folder}/g{g}/k{k}/pairs.jsonl" for g, k in ((0, 0), (2, 2), (2, 4), (2, 6))]
    assert plan.harvested(at(0, regime="fewest"))["matched"] == own
    assert plan.harvested(at(0, regime="fewest"))["pairs"] == f"{folder}/g0/k0/pairs-3.jsonl"
    variant = at(4, variant="longer/")
    assert plan.harvested(variant)["matched"] == ["results/demo/seed0/longer/harvest/g2/k4/pairs.jsonl"]
    assert plan.grpo_settings(variant)["warmup"]["learning_rate"] == 1e-3


def test_an_entry_depends_on_its_own_keys_and_not_on_its_other_k() -> None:
    entry = {"regime": "rft", "epochs": 2, "start": "warmup"}
    both = Plan(configured(regimes={"right": entry})), Plan(configured(regimes={"right": entry | {"steps": [4]}}))
    wildcards = Wildcards(fromdict={"model": "demo", "seed": "0", "g": "2", "k": "4", "regime": "right"})
    first, second = (plan.offline_settings(wildcards) for plan in both)
    assert first == second
    assert first["rft"] == {
        **{"start": "warmup", "per_prompt": None, "epochs": 2, "learning_rate": 5e-5, "lr_schedule": "cosine"},
        **{"per_device_batch_size": 4, "gradient_accumulation_steps": 4},
    }
    assert set(first) == {"rft", "lora", "prompt"}
    assert both[0].start_files(wildcards)[0] == "results/demo/seed0/grpo/g2/k4/policy.json"


def test_only_an_entry_that_asks_for_the_pairs_waits_for_them() -> None:
    entries = {"right": {"regime": "rft"}, "chosen": {"regime": "rft", "examples": "chosen"}, "kto": {"regime": "kto"}}
    plan = Plan(configured(regimes=entries))
    pairs = {name: plan.harvested(at(4, regime=name))["pairs"] for name in entries}
    assert pairs == {"right": [], "chosen": ["results/demo/seed0/harvest/g2/k4/pairs.jsonl"], "kto": []}


def test_the_estimate_counts_the_completions_beyond_the_checkpoint() -> None:
    plan = Plan(configured(**LOCAL))
    assert gpu_job(plan, "train_grpo", at(6, model="big")) == GpuJob("train_grpo", "big", 2 * 16, guess=ANY)
    assert gpu_job(plan, "train_grpo", at(2, model="big")) == GpuJob("train_grpo", "big", 2 * 16, guess=ANY)
    assert gpu_job(plan, "harvest_rollouts_shard", at(2, model="big", shards="4")).units == 0.25
    reused = Plan(configured(**LOCAL, warmup={"steps": [0, 2, 4, 6], "horizon": 8, "iterations": 2}))
    assert gpu_job(reused, "train_grpo", at(6, model="big")) == GpuJob(
        "train_grpo", "big", 2 * 16, at_most=True, guess=ANY
    )
    probe = gpu_job(plan, "draw_probe", at(2, model="big"))
    assert (probe.units, probe.rate_of) == (50 / 1500, "harvest_rollouts")


@pytest.mark.parametrize(("step", "harvest", "asked"), [(0, "g0/k0", 0), (4, "g2/k4", 4 * 8)])
def test_a_replayed_harvest_is_an_input_and_on_the_bill(step: int, harvest: str, asked: int) -> None:
    """8 prompts of G=2 are a step of the main grid, 4 of G=4 one of the ablation."""
    replay = {"successes": 2, "harvest_step": step}
    again = {"steps": [2, 6], "policies": ["grpo"], "warmup": {"group_sizes": [4], "replay": replay}}
    config = configured(ablations={"again": again}, training_set={"n": 30})
    plan = Plan(config)
    trained = at(6, variant="again/", regime="grpo", g="4")
    folder = f"results/demo/seed0/harvest/{harvest}"
    assert plan.replayed_harvest(trained) == [f"{folder}/rollouts.parquet"]
    assert f"{folder}/cost.json" in plan.previous_costs(trained)
    assert "results/demo/seed0/again/grpo/g4/k2/cost.json" in plan.previous_costs(trained)
    assert plan.replayed_harvest(at(6, regime="grpo")) == []
    key = next(key for key in policies(config) if (key.regime, key.k) == ("again/grpo", 6))
    assert prompts_asked(config, key) == 6 * 4 + 30 + asked


def test_a_buffer_asks_fewer_prompts_and_the_estimate_is_an_upper_bound() -> None:
    warmup = {"steps": [0, 6], "replay": {"buffer": 20, "share": 0.5}}
    config = configured(**LOCAL, warmup=warmup)
    key = next(key for key in policies(config) if (key.regime, key.k) == ("grpo", 6))
    assert prompts_asked(config, key) == 8 + 5 * 4
    assert gpu_job(Plan(config), "train_grpo", at(6, model="big")).at_most


def test_merging_shards_takes_no_gpu_and_vllm_as_many_as_it_splits_a_policy_over() -> None:
    plan = Plan(configured(engine={"name": "vllm", "tensor_parallel_size": 2}))
    assert plan.generating_gpus(at(0), SimpleNamespace(shards=[])) == 2
    assert plan.generating_gpus(at(0), SimpleNamespace(shards=["x"])) == 0
    assert plan.engine(at(0)) == "vllm"
