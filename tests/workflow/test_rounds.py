"""DPO in rounds: each on a harvest of the policy of the round before. Their grid is built in test_regimes.py."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.experiment import grid
from g2d.experiment.config import Config, load
from g2d.graph.build import build, grid_jobs
from g2d.graph.job import Job
from g2d.settings import ConfigError
from tests.workflow.test_regimes import ROUNDS


def configured(config: dict[str, Any], entry: dict[str, Any], **changes: Any) -> Config:
    return load(config | {"regimes": {"rounds": entry}} | changes)


def test_rounds_that_are_not_evaluated_are_run_too(micro_config: dict[str, Any]) -> None:
    config = configured(micro_config, ROUNDS | {"rounds": [3]})
    assert [key.k for key in grid.policies(config) if key.in_rounds] == [3]
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
