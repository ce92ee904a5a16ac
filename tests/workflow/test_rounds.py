"""DPO in rounds: each on a harvest of the policy of the round before, as steps of the graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from g2d.experiment import grid
from g2d.experiment.config import Config, load
from g2d.experiment.plan import Plan
from g2d.jobs.files import read_json
from g2d.settings import ConfigError
from tests.workflow.conftest import Project
from tests.workflow.test_grid import OF_REGIMES as SUMMARIES

ROUNDS = {"regime": "iterative_dpo", "rounds": [1, 2]}


def configured(config: dict[str, Any], entry: dict[str, Any], **changes: Any) -> Config:
    return load(config | {"regimes": {"rounds": entry}} | changes)


def test_rounds_are_steps_of_the_graph_and_the_first_is_dpo(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    own_micro_grid.configure(micro_config | {"regimes": {"rounds": ROUNDS}})
    expected = {"train_iterative_dpo": 2, "harvest_rollouts": 1, "build_pairs": 1, "evaluate": 4}
    assert own_micro_grid.planned() == expected | SUMMARIES
    own_micro_grid.build("--quiet", "rules")
    assert own_micro_grid.planned() == {}

    seed = own_micro_grid.results / "micro/seed0"
    first, second = (read_json(seed / f"rounds/g0/k{k}/policy.json") for k in (1, 2))
    assert first["weights_sha256"] == read_json(seed / "dpo/g0/k0/policy.json")["weights_sha256"]
    assert second["weights_sha256"] != first["weights_sha256"]
    assert (second["regime"], second["k"], second["settings"]["n_pairs"] > 0) == ("rounds", 2, True)
    harvest = seed / "rounds/harvest/g0/k1"
    assert set(pd.read_parquet(harvest / "rollouts.parquet").policy_id) == {"micro/seed0/rounds/g0/k1"}
    assert read_json(harvest / "informativeness.json")["n_prompts"] == 60

    tables = own_micro_grid.results / "tables"
    billed = pd.read_csv(tables / "cost.csv").query("policy == 'rounds' and K == 2").set_index("stage").n_jobs
    assert dict(billed) == {"calibrate": 1, "harvest_rollouts": 2, "train_iterative_dpo": 2, "evaluate": 2}
    compared = pd.read_csv(tables / "comparisons.csv").query("benchmark == 'arithmetic' and policy == 'rounds'")
    others = zip(compared.K, compared.reference, compared.reference_K, strict=True)
    assert sorted(others) == [(1, "base", 0), (1, "dpo", 0), (2, "base", 0), (2, "dpo", 0), (2, "rounds", 1)]
    rows = pd.read_csv(tables / "regimes.csv").query("benchmark == 'arithmetic'").to_dict("records")
    spent = {(row["policy"], row["K"]): row for row in rows}
    assert [spent[at]["prompts"] for at in (("dpo", 0), ("rounds", 1), ("rounds", 2))] == [60, 60, 120]
    steps = [read_json(seed / f"rounds/g0/k{k}/policy.json")["settings"]["gradient_steps"] for k in (1, 2)]
    assert spent["rounds", 2]["updates"] == sum(steps)
    card = (seed / "rounds/g0/k2/adapter/README.md").read_text()
    assert "trained with 2 rounds of harvest and DPO (`rounds`), each from the policy of the round before" in card
    said = (own_micro_grid.results / "methods.md").read_text().replace("\\", "")
    assert "Rounds (K=1, 2): rounds of harvest and DPO, the first from M0" in said

    own_micro_grid.configure(micro_config | {"regimes": {"rounds": ROUNDS | {"rounds": [1, 2, 3]}}})
    further = {"train_iterative_dpo": 1, "harvest_rollouts": 1, "build_pairs": 1, "evaluate": 2}
    assert own_micro_grid.planned() == further | SUMMARIES


def test_rounds_that_are_not_evaluated_are_run_too(micro_config: dict[str, Any]) -> None:
    config = configured(micro_config, ROUNDS | {"rounds": [3]})
    assert [key.k for key in grid.policies(config) if key.in_rounds] == [3]
    assert grid.variants(config) == ["rounds"]
    assert grid.variants(configured(micro_config, ROUNDS | {"rounds": [1]})) == []


def at(k: int) -> Any:
    return SimpleNamespace(model="micro", seed="0", g="0", k=str(k), regime="rounds")


def test_a_round_has_dpos_settings_and_its_own(micro_config: dict[str, Any]) -> None:
    sweep = {"development": 20, "regimes": {"dpo": {"learning_rate": [1e-4, 5e-4], "beta": [0.1, 0.2]}}}
    entry = ROUNDS | {"dpo": {"beta": 0.3, "nll_weight": 1.0}}
    changes = {"dpo": micro_config["dpo"] | {"start": "base", "pairs_per_prompt": 4}}
    plan = Plan(configured(micro_config, entry, **changes))
    dpo = plan.round_settings(at(2))["dpo"]
    assert (dpo["beta"], dpo["nll_weight"], dpo["learning_rate"], dpo["pairs_per_prompt"]) == (0.3, 1.0, 5e-4, 1)
    assert plan.choice("dpo")(at(2)) == []
    swept = Plan(configured(micro_config, entry, sweep=sweep))
    assert swept.choice("dpo")(at(2)) == ["results/micro/sweep/dpo.json"]
    dpo = swept.round_settings(at(2))["dpo"]
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
