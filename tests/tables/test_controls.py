"""The parts of a gain over M0: null, elicitation and reward."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from g2d.experiment.keys import PolicyKey
from g2d.tables.controls import TERMS, terms_table
from tests.frames import evaluated
from tests.tables.test_tables import BASE, policy

TRUTH = policy("dpo", 10)
CONTROLS = {"on-coin/dpo": "dpo", "on-votes/dpo": "dpo"}
KINDS = {"on-coin/dpo": "random", "on-votes/dpo": "majority"}


def terms(answers: dict[PolicyKey, np.ndarray], levels: list[int] | None = None) -> pd.DataFrame:
    return terms_table(evaluated(answers, level=levels or 1), CONTROLS, KINDS)


def test_the_parts_by_hand() -> None:
    right = {BASE: 2, policy("on-coin/dpo", 10): 3, policy("on-votes/dpo", 10): 6, TRUTH: 8}
    answers = {key: np.arange(10)[None].repeat(2, 0) < n for key, n in right.items()}
    answers[BASE] = answers[BASE][:1]
    (row,) = terms(answers).to_dict("records")
    assert [row[name] for name in TERMS] == [pytest.approx(part) for part in (0.1, 0.3, 0.2)]
    assert row["gain"] == pytest.approx(0.6) == pytest.approx(sum(row[name] for name in TERMS))
    by_level = terms(answers, [1] * 5 + [2] * 5)
    assert list(by_level["level"].fillna(0)) == [0, 1, 2]
    easy, hard = by_level.iloc[1], by_level.iloc[2]
    assert [easy[name] for name in TERMS] == [pytest.approx(part) for part in (0.2, 0.4, 0)]
    assert [hard[name] for name in TERMS] == [pytest.approx(part) for part in (0, 0.2, 0.4)]


def test_a_policy_without_both_controls_has_no_row() -> None:
    right = {BASE: 2, policy("on-coin/dpo", 10): 3, TRUTH: 8}
    assert terms({key: np.arange(10)[None] < n for key, n in right.items()}).empty


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_the_intervals_hold_together_in_19_grids_of_20(n_seeds: int) -> None:
    """True parts of .05, .1 and .05; seeds scatter by a point."""
    rng, runs, wrong, n = np.random.default_rng(0), 80, 0, 300
    truth = {BASE: 0.4, policy("on-coin/dpo", 10): 0.45, policy("on-votes/dpo", 10): 0.55, TRUTH: 0.6}
    for _ in range(runs):
        difficulty = rng.random(n)
        answers = {}
        for key, accuracy in truth.items():
            shifts = rng.normal(0, 0.01 * (n_seeds > 1), (1 if key == BASE else n_seeds, 1))
            difficult = np.where(rng.random((len(shifts), n)) < 0.3, rng.random((len(shifts), n)), difficulty)
            answers[key] = difficult < accuracy + shifts
        row = terms(answers).iloc[0]
        expected = zip(TERMS, (0.05, 0.1, 0.05), strict=True)
        wrong += any(not row[f"{name}_low"] <= part <= row[f"{name}_high"] for name, part in expected)
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.01, wrong / runs
