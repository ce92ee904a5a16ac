"""Which kinds of prompts a policy was trained on, in which order, and Table 3 of the paper beside it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.prompt_counts import other_prompts, prompts_behind
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import frame
from g2d.tables.paper import SCENARIO_COLUMNS, SCENARIOS, scenario_table
from g2d.tables.win_rates import WIN_RATE_COLUMNS
from tests.tables.test_catalogue import OPEN_ENDED, SMALL

ONLINE = {"regime": "semi_online_dpo", "steps": [2], "prompts_per_update": 4}
ENTRIES: dict[str, Any] = {
    "math": ONLINE,
    "chat": ONLINE | {"prompts": "open_ended"},
    "both": ONLINE | {"prompts": "mixed", "open_ended_share": 0.25},
    "math-chat": ONLINE | {"prompts": "open_ended", "start": "math", "start_step": 2},
    "chat-math": ONLINE | {"start": "chat", "start_step": 2},
    "more-math": ONLINE | {"start": "math", "start_step": 2},
    "g2d-chat": ONLINE | {"prompts": "open_ended", "start": "warmup", "start_step": 10},
}
CONFIG = load(
    SMALL | {"training_set": {"n": 10}, "rewards": {"polite": {"reward": "scratch_model"}}}
    | {"open_ended": OPEN_ENDED, "regimes": ENTRIES}
)  # fmt: skip


def test_the_kinds_of_prompts_behind_a_policy() -> None:
    found = {key.regime: prompts_behind(CONFIG, key.regime) for key in grid.policies(CONFIG)}
    assert found == {
        "base": "",
        **dict.fromkeys(("dpo", "grpo", "math", "more-math"), "verifiable"),
        **{"chat": "open_ended", "both": "mixed", "chat-math": "open_ended, then verifiable"},
        **dict.fromkeys(("math-chat", "g2d-chat"), "verifiable, then open_ended"),
    }
    assert set(SCENARIOS.values()) == set(found.values())
    assert other_prompts(CONFIG, "math") == ""
    assert other_prompts(CONFIG, "both").startswith("verifiable prompts and, 25% of them, open-ended ones, judged by ")


def test_the_papers_rows_stand_beside_the_policies_of_the_same_kinds() -> None:
    at = {"model": "tiny", "group_size": 8, "benchmark": "easy", "n_seeds": 1, "n_problems": 10, "K": 2}
    rows = [at | {"policy": "base", "K": 0, "group_size": None, "accuracy": 0.5}]
    rows += [at | {"policy": name, "accuracy": 0.6} for name in ("math", "both", "rft")]
    won = {name: 0 for name, kind in WIN_RATE_COLUMNS.items() if kind == "int64"} | at
    win_rates = frame([won | {"policy": "both", "prompts": "mixed", "win_rate": 0.9}], WIN_RATE_COLUMNS)
    prompts = {"base": "", "math": "verifiable", "both": "mixed"}  # rft is no policy on fresh rollouts
    table = scenario_table(frame(rows, MAIN_COLUMNS), win_rates, prompts)
    assert list(table.columns) == list(SCENARIO_COLUMNS)
    assert table["prompts"].tolist() == list(SCENARIOS.values())
    assert table["policy"].fillna("").tolist() == ["base", "math", "", "", "", "both"]
    assert table["paper_math500"].tolist() == pytest.approx([0.474, 0.587, 0.35, 0.547, 0.333, 0.573])  # Table 3
    assert table["paper_alpacaeval_lc"].tolist() == pytest.approx([0.32, 0.362, 0.628, 0.719, 0.788, 0.656])
    both = table.iloc[-1]
    assert (both["accuracy"], both["win_rate"], both["K"], both["benchmark"]) == (0.6, 0.9, 2, "easy")
    assert pd.isna(table.iloc[1]["win_rate"])
