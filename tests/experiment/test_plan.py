"""Files and settings of a job by its wildcards, before and after it has finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from g2d.experiment.config import Config, load
from g2d.forecast.hours import GpuJob, gpu_job
from g2d.graph.build import build
from g2d.graph.job import Job, key_of
from g2d.jobs.files import write_text
from g2d.policies.policy import Policy, write_policy
from g2d.settings import ConfigError
from tests.experiment.test_config import MINIMAL
from tests.open_ended import HELD_OUT, JUDGE, POOL

LOCAL = {"models": {"big": {"source": "local", "path": "big"}}}


def configured(**changes: Any) -> Config:
    return load(MINIMAL | {"seeds": [0], "warmup": {"steps": [0, 2, 4, 6], "horizon": 8}} | changes)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(config: Config, output: str, after: bool = False) -> Job:
    return build(config, after).makers[f"results/{output}"]


def settings_of(config: Config, policy: str) -> Any:
    return job(config, f"{policy}/policy.json").params["settings"]


def test_at_k_0_the_harvested_policy_is_m0() -> None:
    config = configured()
    base = ["results/demo/base/policy.json", "results/demo/base/model/model.safetensors"]
    of_m0, of_4 = (job(config, f"demo/seed0/harvest/{at}/rollouts.parquet") for at in ("g0/k0", "g2/k4"))
    assert (of_m0.inputs["policy"], of_m0.inputs[""]) == (base[0], base)
    assert of_m0.inputs["costs"] == ["results/demo/calibration/cost.json"]
    folder = "results/demo/seed0/grpo/g2/k4"
    warmed = [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"]
    assert (of_4.inputs["policy"], of_4.inputs[""]) == (warmed[0], [*warmed, *base])
    benchmark = next(iter(config.benchmarks))
    assert job(config, f"demo/base/eval/{benchmark}.parquet").inputs[""] == base


def test_a_chain_continues_the_k_before_and_a_finished_k_the_one_it_really_had() -> None:
    config, folder = configured(), "demo/seed0/grpo/g2"
    calibration = "results/demo/calibration/cost.json"
    sixth = job(config, f"{folder}/k6/policy.json")
    assert sixth.inputs["checkpoint"] == [f"results/{folder}/k4/checkpoint"]
    assert sixth.inputs["costs"] == [calibration, f"results/{folder}/k4/cost.json"]
    assert job(config, f"{folder}/k2/policy.json").inputs["costs"] == [calibration]
    settings = sixth.params["settings"]
    done = Policy(f"{folder}/k6", "demo", "grpo", "m", continued_from=3, settings=settings)
    write_policy(f"results/{folder}/k6/policy.json", done)
    again = configured()
    assert job(again, f"{folder}/k6/policy.json", after=True).continues == 3
    assert job(again, f"{folder}/k3/policy.json", after=True).continues == 2  # no K of the grid, and still a job
    assert job(again, f"{folder}/k6/policy.json").continues == 4
    other = configured(warmup={"steps": [0, 2, 4, 6], "horizon": 8, "learning_rate": 1e-3})
    # The existing policy had other settings, so it is trained again.
    assert job(other, f"{folder}/k6/policy.json", after=True).continues == 4


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
def test_only_grpo_drawn_by_trl_or_with_dropout_is_trained_again(
    engine: str, dropout: float, ratio: str, more: dict[str, str]
) -> None:
    warmup = {"steps": [0, 2, 4, 6], "horizon": 8, "ratio": ratio}
    config = configured(engine={"name": engine}, lora={"dropout": dropout}, warmup=warmup)
    settings = settings_of(config, "demo/seed0/grpo/g2/k6")
    others = {name: settings[name] for name in settings.keys() - {"warmup", "lora", "prompt"}}
    assert others == {"engine": engine} | more


@pytest.mark.parametrize(
    ("reward", "masked", "more"), [("taste", True, {"masked": "by rewards"}), ("taste", False, {}), ("coin", True, {})]
)
def test_masks_by_the_advantages_of_scalar_rewards_are_trained_again_and_no_others(
    reward: str, masked: bool, more: dict[str, str]
) -> None:
    rewards = {"taste": JUDGE, "coin": {"reward": "random"}}
    entry = {"steps": [2], "reward": reward, "warmup": {"mask_uniform_groups": masked}}
    config = configured(rewards=rewards, ablations={"own": entry}, lora={"dropout": 0}, engine={"name": "vllm"})
    settings = settings_of(config, "demo/seed0/own/grpo/g2/k2")
    assert settings["reward"]["reward"] == rewards[reward]["reward"]
    assert {name: settings[name] for name in settings.keys() - {"warmup", "lora", "prompt", "reward", "engine"}} == more


def test_a_record_that_cannot_be_read_is_named() -> None:
    """The table of jobs names it, because Snakemake drops the error of an input function if the output exists."""
    write_text("results/demo/seed0/grpo/g2/k6/policy.json", "{")
    with pytest.raises(ValueError, match=r"policy\.json"):
        build(configured(), True).behind("all")


def test_a_lookup_reads_no_other_job() -> None:
    """A cluster starts each job in a process with a table of its own."""
    for folder in ("grpo/g2/k4", "grpo/g2/k6"):
        write_text(f"results/demo/seed0/{folder}/policy.json", "{")
    write_text("results/demo/seed0/harvest/g2/k4/cost.json", "{")
    jobs = build(configured(), True)
    of = {"model": "demo", "seed": "0", "g": "2", "k": "2", "variant": ""}
    assert jobs[key_of("train_grpo", of)].continues is None
    assert jobs[key_of("harvest_rollouts", of)].devices == 1
    with pytest.raises(ValueError, match=r"k6/policy\.json"):
        _ = jobs[key_of("train_grpo", of | {"k": "6"})]


def test_pairs_of_a_control_are_matched_to_a_k_or_to_the_fewest() -> None:
    ablations = {
        "n-matched": {"steps": [0], "dpo": {"match_pairs_to": 4}},
        "fewest": {"steps": [0], "dpo": {"match_pairs_to": "min"}},
        "longer": {"steps": [4], "warmup": {"learning_rate": 1e-3}, "dpo": {"match_pairs_to": 4}},
    }
    config = configured(ablations=ablations)
    folder = "results/demo/seed0/harvest"
    read = {name: job(config, f"demo/seed0/{name}/g0/k0/policy.json").inputs for name in ("dpo", "n-matched", "fewest")}
    assert read["dpo"]["matched"] == []
    assert read["n-matched"]["matched"] == [f"{folder}/g2/k4/pairs.jsonl"]
    main_pairs = [f"{folder}/g{g}/k{k}/pairs.jsonl" for g, k in ((0, 0), (2, 2), (2, 4), (2, 6))]
    assert read["fewest"]["matched"] == main_pairs
    assert read["fewest"]["pairs"] == f"{folder}/g0/k0/pairs.jsonl"
    longer = job(config, "demo/seed0/longer/dpo/g2/k4/policy.json")
    assert longer.inputs["matched"] == ["results/demo/seed0/longer/harvest/g2/k4/pairs.jsonl"]
    warmed = job(config, "demo/seed0/longer/grpo/g2/k4/policy.json")
    assert warmed.params["settings"]["warmup"]["learning_rate"] == 1e-3


def test_an_entry_depends_only_on_its_keys_and_its_k() -> None:
    entry = {"regime": "rft", "epochs": 2, "start": "warmup"}
    both = configured(regimes={"right": entry}), configured(regimes={"right": entry | {"steps": [4]}})
    first, second = (settings_of(config, "demo/seed0/right/g2/k4") for config in both)
    assert first == second
    assert first["rft"] == {
        **{"start": "warmup", "per_prompt": None, "epochs": 2, "learning_rate": 5e-5, "lr_schedule": "cosine"},
        **{"per_device_batch_size": 4, "gradient_accumulation_steps": 4},
    }
    assert set(first) == {"rft", "lora", "prompt"}
    trained = job(configured(regimes={"right": entry}), "demo/seed0/right/g2/k4/policy.json")
    assert trained.inputs["start"][0] == "results/demo/seed0/grpo/g2/k4/policy.json"


def test_only_an_entry_that_asks_for_the_pairs_waits_for_them() -> None:
    entries = {"right": {"regime": "rft"}, "chosen": {"regime": "rft", "examples": "chosen"}}
    config = configured(regimes=entries)
    pairs = {name: job(config, f"demo/seed0/{name}/g2/k4/policy.json").inputs["pairs"] for name in entries}
    assert pairs == {"right": [], "chosen": ["results/demo/seed0/harvest/g2/k4/pairs.jsonl"]}


def work_of(config: Config, output: str) -> GpuJob:
    return gpu_job(config, job(config, output))


def test_the_estimate_counts_the_completions_beyond_the_checkpoint() -> None:
    config, folder = configured(**LOCAL), "big/seed0"
    for k in (2, 6):
        trained = work_of(config, f"{folder}/grpo/g2/k{k}/policy.json")
        assert trained == GpuJob("train_grpo", "big", 2 * 16, guess=ANY)
    reused = configured(**LOCAL, warmup={"steps": [0, 2, 4, 6], "horizon": 8, "iterations": 2})
    trained = work_of(reused, f"{folder}/grpo/g2/k6/policy.json")
    assert trained == GpuJob("train_grpo", "big", 2 * 16, at_most=True, guess=ANY)


def test_vllm_needs_a_gpu_per_part_of_a_policy() -> None:
    drawn = job(configured(engine={"name": "vllm", "tensor_parallel_size": 2}), "demo/calibration/rollouts.parquet")
    assert (drawn.devices, drawn.params["engine"]) == (2, "vllm")


def test_a_warmup_that_stops_is_trained_anew_and_its_record_says_where() -> None:
    warmup = {"steps": [0, 2, 4], "horizon": 4, "auto": {"every": 2, "patience": 1}}
    config, folder = configured(warmup=warmup), "demo/seed0/auto/grpo/g2/k4"
    stopped = job(config, f"{folder}/policy.json")
    assert stopped.rule == "train_grpo_auto"
    assert "checkpoint" not in stopped.inputs | stopped.outputs
    after = job(config, "demo/seed0/auto/dpo/g2/k4/policy.json").inputs
    assert after["warmup"] == [f"results/{folder}/policy.json"]
    assert after["pairs"] == "results/demo/seed0/auto/harvest/g2/k4/pairs.jsonl"
    assert job(config, "demo/seed0/dpo/g2/k4/policy.json").inputs["warmup"] == []


def test_an_online_entry_that_starts_from_a_policy_reads_it_and_its_bill() -> None:
    online = {"regime": "semi_online_dpo", "steps": [2], "sync_every": 1}
    regimes = {"first": online | {"responses": 4}, "then": online | {"start": "first", "start_step": 2}}
    config, calibration = configured(regimes=regimes), "results/demo/calibration/cost.json"
    before = "results/demo/seed0/first/g4/k2"
    given = job(config, "demo/seed0/then/g8/k2/policy.json").inputs
    assert given["start"] == [f"{before}/policy.json", f"{before}/adapter/adapter_model.safetensors"]
    assert given["costs"] == [calibration, f"{before}/cost.json"]
    assert job(config, "demo/seed0/first/g4/k2/policy.json").inputs["costs"] == [calibration]


def test_dpo_from_the_warmed_up_policy_reads_it() -> None:
    config = configured(ablations={"on": {"steps": [4], "dpo": {"start": "warmup"}}})
    folder = "results/demo/seed0/grpo/g2/k4"
    start = [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"]
    assert job(config, "demo/seed0/on/g2/k4/policy.json").inputs["start"] == start
    assert job(config, "demo/seed0/dpo/g2/k4/policy.json").inputs["start"] == []


def test_a_control_judges_the_harvest_of_m0_again_and_draws_its_own_later() -> None:
    control = {"steps": [0, 4], "reward": "coin"}
    keys = {"rewards": {"coin": {"reward": "random"}}, "ablations": {"control": control}}
    config, folder = configured(**keys), "demo/seed0/control/harvest"
    of_m0, later = (job(config, f"{folder}/{at}/rollouts.parquet") for at in ("g0/k0", "g2/k4"))
    harvest = "results/demo/seed0/harvest/g0/k0"
    assert (of_m0.inputs["judged"], of_m0.inputs["costs"]) == (
        [f"{harvest}/rollouts.parquet"],
        [f"{harvest}/cost.json"],
    )
    assert (of_m0.settled, of_m0.devices, of_m0.holds_device) == (True, 0, False)
    assert (later.inputs["judged"], later.settled, later.devices) == ([], False, 1)
    without = configured(**keys, warmup={"steps": [4], "horizon": 8})
    assert job(without, f"{folder}/g0/k0/rollouts.parquet").inputs["judged"] == []


def test_a_training_reads_the_prompts_that_it_asks() -> None:
    kinds = ("verifiable", "open_ended", "mixed")
    entry = {"regime": "semi_online_dpo", "steps": [2], "sync_every": 1}
    config = configured(
        regimes={kind: entry | {"prompts": kind} for kind in kinds},
        rewards={"taste": JUDGE},
        open_ended={"pool": POOL, "held_out": HELD_OUT, "reward": "taste"},
    )
    asked = {kind: job(config, f"demo/seed0/{kind}/g8/k2/policy.json").inputs["problems"] for kind in kinds}
    verifiable, open_ended = "results/demo/calibration/train.jsonl", "results/problems/open-ended.jsonl"
    assert asked == {"verifiable": [verifiable], "open_ended": [open_ended], "mixed": [verifiable, open_ended]}


def test_chosen_levels_are_a_setting_of_the_selection_and_sampled_ones_of_the_calibration() -> None:
    for sampled, of_calibration in (("all", None), ("pinned", [2])):
        config = configured(calibration={"levels": [2], "sampled_levels": sampled}, training_set={"n": 100})
        calibrated = job(config, "demo/calibration/rollouts.parquet").params["settings"]["calibration"]
        assert calibrated.get("levels") == of_calibration
        selected = job(config, "demo/calibration/train.jsonl").params["settings"]["calibration"]
        assert selected["levels"] == [2]


def test_every_trained_policy_and_harvest_has_a_card() -> None:
    config = configured(warmup={"steps": [0, 2], "horizon": 2}, baselines={"grpo_group_sizes": [2]})
    cards = build(config)["write_cards",].outputs[""]
    policies = ["dpo/g0/k0/adapter", "dpo/g2/k2/adapter", "grpo/g2/k2/adapter"]
    expected = [f"results/demo/seed0/{place}/README.md" for place in (*policies, "harvest/g0/k0", "harvest/g2/k2")]
    assert sorted(cards) == sorted(expected)


def test_prompts_are_a_setting_of_the_warmup_that_asks_open_ended_ones() -> None:
    ablation = {"steps": [4], "prompts": "open_ended", "policies": ["grpo"]}
    config = configured(
        ablations={"open": ablation},
        rewards={"taste": JUDGE},
        open_ended={"pool": POOL, "held_out": HELD_OUT, "reward": "taste"},
    )
    assert settings_of(config, "demo/seed0/open/grpo/g2/k4")["prompts"] == {"prompts": "open_ended"}
    assert "prompts" not in settings_of(config, "demo/seed0/grpo/g2/k4")


def test_to_select_by_a_benchmark_loads_it_not_again() -> None:
    def params(**marked: bool) -> Any:
        picks = MINIMAL["benchmarks"]["held-out"] | {"seed": 1} | marked
        config = configured(benchmarks=MINIMAL["benchmarks"] | {"picks": picks})
        return job(config, "problems/picks.jsonl").params

    assert params(select_by=True) == params()


def test_the_reward_of_the_warm_up_holds_for_the_main_grid_and_whatever_names_no_other() -> None:
    rewards = {"mine": {"reward": "random"}, "truth": {"reward": "math_verify"}}
    control = {"steps": [0, 4], "reward": "truth", "policies": ["dpo", "grpo"]}
    config = configured(
        warmup={"steps": [0, 4], "horizon": 8, "reward": "mine"},
        rewards=rewards,
        ablations={"faster": {"steps": [4], "warmup": {"learning_rate": 1e-3}}, "control": control},
        regimes={"fresh": {"regime": "semi_online_dpo", "steps": [2]}},
    )
    mine, truth = ({"reward": entry["reward"]} for entry in rewards.values())
    for policy, reward in {
        "grpo/g2/k4": mine,
        "faster/grpo/g2/k4": mine,
        "control/grpo/g2/k4": truth,
        "fresh/g8/k2": mine,
    }.items():
        assert settings_of(config, f"demo/seed0/{policy}")["reward"].items() >= reward.items()
    assert "reward" not in settings_of(config, "demo/seed0/grpo/g2/k4")["warmup"]  # another name is no other training
    main = job(config, "demo/seed0/harvest/g0/k0/rollouts.parquet")
    assert (main.params["settings"]["reward"]["reward"], main.inputs["judged"]) == ("random", [])
    again = job(config, "demo/seed0/control/harvest/g0/k0/rollouts.parquet")
    assert again.inputs["judged"] == ["results/demo/seed0/harvest/g0/k0/rollouts.parquet"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warmup": {"reward": "mine"}}, "warmup.reward: mine is no entry of rewards: add it there"),
        (
            {"warmup": {"reward": {"file": "mine.py"}, "auto": {"every": 50}}},
            "warmup: auto stops by the share of right rollouts",
        ),
        (
            {"ablations": {"other": {"steps": [150], "warmup": {"reward": "mine"}}}},
            "ablations.other: warmup.reward: write it as the ablation's reward",
        ),
    ],
)
def test_a_reward_of_the_warm_up_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(MINIMAL | changes)
