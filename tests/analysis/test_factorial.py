"""Level x temperature: effects by hand, coverage of simulated effects, and empty tables."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from g2d.analysis.factorial import factorial_effects
from g2d.rollouts.rollout import to_frame
from g2d.tables.harvest import CELL_COLUMNS, factorial_table
from tests.frames import group


def sampled(successes: dict[int, list[int]], n: int = 8) -> pd.DataFrame:
    """Rollouts of the problems of each level, given how many of n are correct."""
    return to_frame(
        [
            rollout
            for level, counts in successes.items()
            for i, correct in enumerate(counts)
            for rollout in group(f"{level}/{i}", correct, n, level=level)
        ]
    )


def test_cells_by_hand() -> None:
    cells = factorial_table({"m": {1.3: sampled({2: [4, 8], 5: [0, 1]}), 0.8: sampled({2: [8, 8], 5: [0, 0]})}})
    assert tuple(cells.columns) == tuple(CELL_COLUMNS)
    assert list(zip(cells["level"], cells["temperature"], strict=True)) == [(2, 0.8), (2, 1.3), (5, 0.8), (5, 1.3)]
    assert list(cells["pass_at_1"]) == [1, 0.75, 0, 1 / 16]
    assert list(cells["pairability"]) == [0, 0.5, 0, 0.5]
    assert list(cells["all_wrong"]) == [0, 0, 1, 0.5]
    assert cells["mid_band"].isna().tolist() == [True, False, True, False]
    assert list(cells["mid_band"])[1::2] == [1, 0]
    assert cells["entropy"][3] == pytest.approx(-(1 / 8) * math.log2(1 / 8) - (7 / 8) * math.log2(7 / 8))


def test_effects_by_hand_add_up_to_the_cells() -> None:
    rollouts = {0.8: sampled({2: [8, 8, 4, 8], 5: [0] * 4}), 1.3: sampled({2: [4, 4, 4, 8], 5: [0, 0, 0, 1]})}
    effects = pd.DataFrame(factorial_effects(rollouts))
    rho = effects[effects["metric"] == "pairability"].set_index("source")
    # Cells: 1/4, 3/4 (level 2); 0, 1/4 (level 5); mean 5/16.
    assert list(rho.loc["level", "effect"]) == pytest.approx([3 / 16, -3 / 16])
    assert list(rho.loc["temperature", "effect"]) == pytest.approx([-3 / 16, 3 / 16])
    assert list(rho.loc["interaction", "effect"]) == pytest.approx([-1 / 16, 1 / 16, 1 / 16, -1 / 16])
    shares = rho.groupby("source")["share"].first()
    assert shares.to_dict() == pytest.approx({"level": 9 / 19, "temperature": 9 / 19, "interaction": 1 / 19})


def test_intervals_cover_effects_that_were_put_in() -> None:
    """p(x) varies between problems and is shifted by level and temperature; only additive effects on p are there."""
    rng = np.random.default_rng(0)
    runs, covered = 40, np.zeros(2)
    for run in range(runs):
        base = {level: rng.uniform(0.25, 0.45, 60) + shift for level, shift in ((1, 0.2), (2, 0.0))}
        rollouts = {
            t: sampled({level: list(rng.binomial(8, p + shift)) for level, p in base.items()})
            for t, shift in ((0.8, 0.1), (1.3, 0.0))
        }
        effects = pd.DataFrame(factorial_effects(rollouts, resamples=200, seed=run))
        rows = effects[effects["metric"] == "pass_at_1"].groupby("source", sort=False).first()
        for i, (source, truth) in enumerate((("temperature", 0.05), ("interaction", 0.0))):
            covered[i] += rows.loc[source, "ci_low"] <= truth <= rows.loc[source, "ci_high"]
    assert (covered / runs > 0.85).all()


def test_other_problems_at_another_temperature_are_refused() -> None:
    with pytest.raises(ValueError, match=r"temperature 1.3 are of other problems than those at 0.8"):
        factorial_table({"m": {0.8: sampled({1: [1, 2]}), 1.3: sampled({1: [1]})}})


def test_one_temperature_or_no_level_has_no_effects() -> None:
    one = {1.3: sampled({1: [1, 2]})}
    assert not list(factorial_effects(one))
    unlevelled = to_frame(group("p", 2, 8, level=None))
    none = {0.8: unlevelled, 1.3: unlevelled}
    assert factorial_table({"m": none}).empty
    assert not list(factorial_effects(none))
