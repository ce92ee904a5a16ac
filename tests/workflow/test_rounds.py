"""DPO in rounds and GRPO in stages, each on a harvest of the policy before. Their grid is built in test_regimes.py."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.experiment import grid
from g2d.experiment.config import Config, load
from g2d.forecast.hours import gpu_job
from g2d.graph.build import build, grid_jobs
from g2d.graph.job import Job
from g2d.settings import ConfigError
from tests.workflow.test_regimes import ROUNDS, STAGED


def configured(config: dict[str, Any], entry: dict[str, Any], **changes: Any) -> Config:
    return load(config | {"regimes": {"rounds": entry}} | changes)


def test_rounds_that_are_not_evaluated_are_run_too(micro_config: dict[str, Any]) -> None:
    config = configured(micro_config, ROUNDS | {"rounds": [3]})
    assert [key.k for key in grid.policies(config) if key.arm.in_rounds] == [3]
    assert grid.variants(config) == ["rounds"]
    assert grid.variants(configured(micro_config, ROUNDS | {"rounds": [1]})) == []


def test_all_rounds_and_their_harvests_are_jobs_of_the_grid(micro_config: dict[str, Any]) -> None:
    config = configured(micro_config, ROUNDS | {"rounds": [1, 3]})
    jobs = [(job.rule, job.done[0]) for job in grid_jobs(config)]
    folder = "results/micro/seed0/rounds"
    for job in [("train_iterative_dpo", f"{folder}/g0/k{k}/policy.json") for k in (1, 2, 3)]:
        assert jobs.count(job) == 1
    for harvest in ("results/micro/seed0/harvest/g0/k0", f"{folder}/harvest/g0/k1", f"{folder}/harvest/g0/k2"):
        assert jobs.count(("harvest_rollouts", f"{harvest}/rollouts.parquet")) == 1
        assert jobs.count(("build_pairs", f"{harvest}/pairs.jsonl")) == 1
    assert not [output for _, output in jobs if output.startswith(f"{folder}/harvest/g0/k3")]


def round_2(config: Config) -> Job:
    return build(config).makers["results/micro/seed0/rounds/g0/k2/policy.json"]


def test_a_round_has_dpos_settings_and_its_own(micro_config: dict[str, Any]) -> None:
    sweep = {"development": 20, "regimes": {"dpo": {"learning_rate": [1e-4, 5e-4], "beta": [0.1, 0.2]}}}
    entry = ROUNDS | {"dpo": {"beta": 0.3, "nll_weight": 1.0}}
    changes = {"dpo": micro_config["dpo"] | {"start": "base", "pairs_per_prompt": 4}}
    trained = round_2(configured(micro_config, entry, **changes))
    dpo = trained.params["settings"]["dpo"]
    assert (dpo["beta"], dpo["nll_weight"], dpo["learning_rate"], dpo["pairs_per_prompt"]) == (0.3, 1.0, 5e-4, 1)
    assert trained.inputs["choice"] == []
    swept = round_2(configured(micro_config, entry, sweep=sweep))
    assert swept.inputs["choice"] == ["results/micro/sweep/dpo.json"]
    dpo = swept.params["settings"]["dpo"]
    assert (dpo["beta"], "learning_rate" in dpo) == (0.3, False)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"rounds": []}, "regimes.rounds.rounds: "),
        ({"rounds": [0, 1]}, "regimes.rounds.rounds: list every round once, the first is 1"),
        ({"rounds": [2, 2]}, "regimes.rounds.rounds: list every round once, the first is 1"),
        ({"dpo": {"start": "warmup"}}, "regimes.rounds.dpo.start: a round starts at the one before"),
        ({"dpo": {"betta": 1}}, "regimes.rounds.dpo.betta: unknown key; did you mean beta?"),
        ({"dpo": {"beta": -1}}, "regimes.rounds.dpo.beta: input should be greater than 0"),
        ({"start": "warmup"}, "regimes.rounds.start: unknown key"),
    ],
)
def test_a_mistake_in_rounds_is_named(micro_config: dict[str, Any], entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(micro_config, ROUNDS | entry)


def staged(config: dict[str, Any], **changes: Any) -> Config:
    return load(config | {"regimes": {"staged": STAGED | changes}})


def test_stages_have_grpos_settings_and_their_own(micro_config: dict[str, Any]) -> None:
    config = staged(micro_config, stages=[1, 4])
    assert [key.folder for key in grid.policies(config) if key.role == "entry"] == [
        *("micro/seed0/staged/1/g2/k1", "micro/seed0/staged/4/g2/k4")
    ]
    makers = build(config).makers
    last = makers["results/micro/seed0/staged/4/g2/k4/policy.json"]
    warmup, grpo = (
        job.params["settings"]["warmup"] for job in (last, makers["results/micro/seed0/grpo/g2/k4/policy.json"])
    )
    keys = {"epsilon": 0.5, "epsilon_high": 1.0, "negative_veto": 2.0}
    assert warmup == grpo | keys | {"gradient_accumulation_steps": 15}
    folder = "results/micro/seed0/staged/4"
    assert last.inputs["harvest"] == [f"{folder}/harvest/g2/k3/rollouts.parquet"]
    assert last.inputs["checkpoint"] == [f"{folder}/g2/k3/checkpoint"]
    drawn = [makers[f"{folder}/harvest/g{2 if k else 0}/k{k}/rollouts.parquet"].params["settings"] for k in range(4)]
    assert [(of["stage"]["first"], of["stage"]["prompts"]) for of in drawn] == [(30 * k, 30) for k in range(4)]
    assert {(of["harvest"]["samples_per_prompt"], of["harvest"]["temperature"]) for of in drawn} == {(2, 0.8)}
    whole = makers["results/micro/seed0/staged/1/g2/k1/policy.json"].params["settings"]["warmup"]
    assert whole == warmup | {"updates_per_generation": 4}
    assert gpu_job(config, last).units == 60
    assert gpu_job(config, makers["results/micro/seed0/staged/1/g2/k1/policy.json"]).units == 4 * 60


def test_a_stage_of_several_passes_draws_several_groups_per_problem(micro_config: dict[str, Any]) -> None:
    config = staged(micro_config, stages=[1])
    (drawn,) = [job for job in grid_jobs(config) if job.rule == "harvest_rollouts" and "staged" in job.name]
    assert drawn.params["settings"]["harvest"]["samples_per_prompt"] == 4
    assert drawn.params["settings"]["stage"] == {"number": 0, "first": 0, "prompts": 120}


def test_stages_may_have_as_many_updates_as_grpo_at_an_earlier_k(micro_config: dict[str, Any]) -> None:
    baselines = micro_config["baselines"] | {"grpo_steps": "all"}
    config = staged(micro_config | {"baselines": baselines}, stages=[1], updates=2)
    makers = build(config).makers
    trained, grpo = (makers[f"results/micro/seed0/{at}/policy.json"] for at in ("staged/1/g2/k1", "grpo/g2/k2"))
    of_stage, of_grpo = (job.params["settings"]["warmup"] for job in (trained, grpo))
    assert of_stage["updates_per_generation"] == 2
    assert of_stage["horizon"] == of_grpo["horizon"] == 6
    assert gpu_job(config, trained).units == 2 * 60


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"stages": []}, "regimes.staged.stages: "),
        ({"stages": [0]}, "regimes.staged.stages: list every number of stages once, at least 1"),
        ({"stages": [2, 2]}, "regimes.staged.stages: list every number of stages once"),
        ({"stages": [3]}, "regimes.staged.stages: the 4 updates .* are no multiple of 3 stages"),
        ({"stages": [8]}, "regimes.staged.stages: the 4 updates .* are no multiple of 8 stages"),
        ({"updates": 3}, r"regimes.staged.updates: 3 is not in warmup.steps.*: write one of \[0, 2, 4\]"),
        ({"updates": 2, "stages": [1]}, r"regimes.staged.updates: .*K=2.*: set baselines.grpo_steps to all"),
        ({"warmup": {}}, "regimes.staged.stages: with 1, a stage has 32 prompts, .*training_set.n=60"),
        ({"warmup": {"lag": 1}}, "regimes.staged.warmup.lag: follows from the stages"),
        ({"warmup": {"epsilon": 1}}, "regimes.staged.warmup.epsilon: the entry has epsilon itself"),
        ({"warmup": {"betta": 1}}, "regimes.staged.warmup.betta: unknown key; did you mean beta?"),
        ({"negative_veto": 0.5}, "regimes.staged.negative_veto: input should be greater than 1"),
        ({"warmup": {"off_policy_mask_threshold": 1}}, "regimes.staged.warmup.* only one mask"),
    ],
)
def test_a_mistake_in_stages_is_named(micro_config: dict[str, Any], entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        staged(micro_config, **entry)


def test_stages_take_over_what_a_sweep_chooses_for_the_warm_up(micro_config: dict[str, Any]) -> None:
    sweep = {"development": 20, "regimes": {"warmup": {"learning_rate": [1e-4, 5e-4], "epsilon": [0.1, 0.2]}}}
    trained = build(staged(micro_config | {"sweep": sweep})).makers["results/micro/seed0/staged/1/g2/k1/policy.json"]
    assert trained.inputs["choice"] == ["results/micro/sweep/warmup.json"]
    warmup = trained.params["settings"]["warmup"]
    assert (warmup["epsilon"], "learning_rate" in warmup) == (0.5, False)
    with pytest.raises(ConfigError, match=r"sweep\.regimes\.staged: .* write warmup"):
        staged(micro_config | {"sweep": sweep | {"regimes": {"staged": {"epsilon": [0.1, 0.2]}}}})


def test_stages_need_updates_and_one_process(micro_config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"regimes\.staged: GRPO in stages needs one process"):
        staged(micro_config | {"training": {"processes": 2}})
    without = micro_config | {"warmup": micro_config["warmup"] | {"steps": [0]}, "ablations": {}}
    with pytest.raises(ConfigError, match=r"regimes.staged.stages: warmup.steps has no K above 0"):
        staged(without | {"baselines": {"grpo_group_sizes": []}})
