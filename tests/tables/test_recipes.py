"""The blocks of docs/recipes.md, run on small frames with results worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import g2d
from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.checks.load import load
from g2d.config.sections import Config
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import frame
from g2d.tables.harvest import CALIBRATION_COLUMNS
from g2d.tables.win_rates import WIN_RATE_COLUMNS
from tests.configs import OPEN_ENDED, SMALL
from tests.open_ended import JUDGE

PAGE = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Tables of your own")[1]
RECIPES = dict(re.findall(r"^\*\*(.+?)\*\*.*?^```python\n(.*?)^```", SECTION, re.M | re.S))

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the recipe whose title begins so, on results with these attributes, and return its variables."""

    def run(title: str, **results: Any) -> dict[str, Any]:
        [recipe] = [text for name, text in RECIPES.items() if name.startswith(title)]
        monkeypatch.setattr(g2d, "open", lambda folder: SimpleNamespace(**results))
        variables: dict[str, Any] = {}
        exec(recipe, variables)
        return variables

    return run


def accuracies(*rows: tuple[str, int, float], **more: Any) -> pd.DataFrame:
    """Table 1: policy, K and accuracy of each row."""
    table = pd.DataFrame(rows, columns=["policy", "K", "accuracy"])
    table = table.assign(
        group_size=8, model="m", benchmark="math500", n_seeds=1, n_problems=500, n_clusters=500
    ).assign(**more)
    return frame(table.to_dict("records"), MAIN_COLUMNS)


def test_every_block_of_the_section_is_a_recipe_with_a_test() -> None:
    assert len(RECIPES) == PAGE.count("```python") == 5


def test_levels(run: Run) -> None:
    zeros = dict.fromkeys(LEVEL_COLUMNS, 0)
    rows = [
        zeros | {"model": "m", "levels": "1", "n": 10, "pass_at_1": 0.9, "pairable": 1, "pairable_share": 0.1},
        zeros | {"model": "m", "levels": "2", "n": 10, "pass_at_1": 0.5, "pairable": 8, "pairable_share": 0.8},
    ]
    config = load(SMALL | {"calibration": {"window": [0.5, 0.6]}})
    levels = run("Levels", config=config, tables={"calibration": frame(rows, CALIBRATION_COLUMNS)})["levels"]
    assert levels["in_window"].tolist() == [False, True]
    assert levels["pairs_per_100"].tolist() == [10, 80]
    assert levels["interval"][1] == pytest.approx((0.490, 0.943), abs=1e-3)


def test_a_recipe_compares_policies_at_the_token_cost_of_g2d(run: Run) -> None:
    """30 tokens: DPO, GRPO, and of the online entry only the first ten updates."""
    rows = (("base", 0, 0.4), ("dpo", 0, 0.75), ("g2d", 50, 0.76), ("grpo", 100, 0.5), ("online", 10, 0.6))
    main = accuracies(*rows, ("online", 20, 0.85), ("ipo", 50, 0.95))
    main = main.assign(tokens_generated=[0, 10, 30, 20, 15, 40, 5], change=[None] * 6 + ["loss=ipo"])
    best = run("The tokens of G2D", tables={"main": main})["best"]
    cells = best.set_index("policy_other")[["K", "K_other", "tokens_other", "accuracy_other"]]
    assert cells.T.to_dict("list") == {
        "dpo": [50, 0, 10, 0.75],
        "online": [50, 10, 15, 0.6],
        "grpo": [50, 100, 20, 0.5],
    }


def test_equal_compute_takes_the_largest_k_that_generated_no_more_tokens(run: Run) -> None:
    tokens = {("base", 0): 0, ("grpo", 500): 50, ("grpo", 1000): 100, ("long/grpo", 500): 80, ("long/grpo", 600): 100}
    tokens |= {("long/grpo", 700): 101, ("huge/grpo", 100): 300, ("dpo", 500): 1}
    right = {("grpo", 1000): 2, ("long/grpo", 600): 3}
    policies = []
    answers = []
    for (regime, k), n_tokens in tokens.items():
        row = {"model": "m", "regime": regime, "K": k, "group_size": 2, "seed": 0}
        policies.append(row | {"tokens_generated": n_tokens})
        for i in range(4):
            answers.append(row | {"benchmark": "b", "reward": float(i < right.get((regime, k), 0))})
    bills = pd.DataFrame(policies)
    bills = pd.concat([bills.assign(benchmark=None), bills.assign(benchmark="b")])  # evaluations do not count
    largest = run("Equal compute", bills=bills[bills["regime"] != "base"], evaluations=pd.DataFrame(answers))["largest"]
    cells = largest.set_index("regime")[["K", "K_grpo", "accuracy", "accuracy_grpo"]]
    assert cells.T.to_dict("list") == {"dpo": [500, 1000, 0, 0.5], "long/grpo": [600, 1000, 0.75, 0.5]}


def test_the_bridging_paper_stands_next_to_what_has_its_s_at_the_largest_k(run: Run) -> None:
    online = {"regime": "semi_online_dpo", "steps": [10, 20]}
    entries = {"offline": online | {"sync_every": "never"}, "s10": online | {"sync_every": 10}}
    rows = [("base", 0, 0.45), ("offline", 10, 0.5), ("offline", 20, 0.52), ("s10", 20, 0.55)]
    config = Config.model_validate(SMALL | {"regimes": entries})
    compared = run('Table 1 of "Bridging', config=config, tables={"main": accuracies(*rows)})["compared"]
    rows = compared.dropna(subset="policy")[["s", "policy", "K"]]
    assert rows.to_numpy().tolist() == [["Seed", "base", 0], ["inf", "offline", 20], ["10", "s10", 20]]
    assert compared["difference"][1] == pytest.approx(0.52 - 0.537)


def test_mixed_training_stands_next_to_the_policies_of_the_same_kinds(run: Run) -> None:
    main = accuracies(("math", 2, 0.5), ("both", 2, 0.6), benchmark="easy")
    won = dict.fromkeys(WIN_RATE_COLUMNS, 0) | {"model": "m", "K": 2, "group_size": 8}
    rates = [won | {"policy": "math", "prompts": "verifiable"}, won | {"policy": "both", "prompts": "mixed"}]
    config = load(SMALL | {"rewards": {"polite": JUDGE}, "open_ended": OPEN_ENDED})
    tables = {"main": main, "win_rates": frame(rates, WIN_RATE_COLUMNS)}
    compared = run("Table 3 of the same", config=config, tables=tables)["compared"]
    assert compared["math500"].tolist() == ["58.7", "35.0", "54.7", "33.3", "57.3"]
    assert compared["policy"].fillna("").tolist() == ["math", "", "", "", "both"]
