"""The share of a gain that a control gets: its interval agrees with the paired tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.analysis.comparisons import compare
from g2d.analysis.crossed import SeedPool
from g2d.analysis.shares import Share, share_of_gain


def answers(rng: np.random.Generator, accuracy: float, n_seeds: int, n: int, difficulty: np.ndarray) -> np.ndarray:
    """Seeds agree on which problems are hard."""
    return (difficulty + 0.3 * rng.random((n_seeds, n)) < 1.3 * accuracy).astype(float)


def test_by_hand() -> None:
    base, truth, control = (np.r_[np.ones(n), np.zeros(200 - n)][None] for n in (40, 140, 65))
    estimate = share_of_gain(control, truth, base)
    assert estimate.share == pytest.approx(0.25)
    assert 0 < float(estimate.low or 0) < 0.25 < float(estimate.high or 1) < 1
    assert share_of_gain(truth, base, base) == Share(None, None, None)  # no share of nothing


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0.3, 0.9), st.booleans())
def test_its_interval_holds_0_and_1_where_the_tests_do(seed: int, n_seeds: int, accuracy: float, pooled: bool) -> None:
    rng = np.random.default_rng(seed)
    difficulty = rng.random(120)
    base = answers(rng, 0.3, 1, 120, difficulty)
    truth, control = (answers(rng, a, n_seeds, 120, difficulty) for a in (0.8, accuracy))
    accuracies = np.stack([truth.mean(axis=1), control.mean(axis=1), 0.5 + 0.1 * rng.random(n_seeds)])
    pool = SeedPool(accuracies) if pooled else None
    estimate = share_of_gain(control, truth, base, pool)
    if compare(truth, base, pool).p_value >= 0.05:  # a pool of seeds that scatter widely
        assert estimate.low is estimate.high is None
        return
    assert estimate.share == pytest.approx((control.mean() - base.mean()) / (truth.mean() - base.mean()))
    low = -np.inf if estimate.low is None else estimate.low
    high = np.inf if estimate.high is None else estimate.high
    assert low <= estimate.share <= high
    assert (low <= 0 <= high) == (compare(control, base, pool).p_value > 0.05)
    assert (low <= 1 <= high) == (compare(control, truth, pool).p_value > 0.05)
