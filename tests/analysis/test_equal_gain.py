"""The comparison at equal gain: by hand, where it is refused, and how often its interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest

from g2d.analysis.equal_gain import at_equal_gain
from g2d.analysis.statistics import mean_interval

GAIN = np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3])
ONLINE = np.array([True, True, True, False, False, False])


def simulated(rng: np.random.Generator, means: np.ndarray, n_seeds: int, n_problems: int) -> np.ndarray:
    """Skewed divergences, (policies, seeds, problems): shared problems, seeds of every policy, and single answers."""
    problems = rng.lognormal(-0.125, 0.5, (1, 1, n_problems))
    sd = 0.1 if n_seeds > 1 else 0.0  # an interval from one seed is for its weights
    seeds = rng.lognormal(-(sd**2) / 2, sd, (len(means), n_seeds, 1))
    single = rng.exponential(1.0, (len(means), n_seeds, n_problems))
    return means[:, None, None] * problems * seeds * single


def exactly(gain: np.ndarray, n_seeds: int = 2, n_problems: int = 5) -> np.ndarray:
    """The same gain on every problem."""
    return np.broadcast_to(gain[:, None, None], (len(gain), n_seeds, n_problems))


def test_the_ratio_is_that_of_the_regression() -> None:
    """By hand: with the same gains in both groups it is the ratio of geometric means, whatever the slope."""
    means = np.array([1.0, 2.0, 8.0, 3.0, 6.0, 24.0])
    found = at_equal_gain(np.broadcast_to(means[:, None, None], (6, 2, 5)), exactly(GAIN), ONLINE)
    assert found.status == "compared"
    assert (found.ratio, found.ratio_low, found.ratio_high) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert found.p_value < 1e-9


def test_gain_is_taken_into_account() -> None:
    """Online policies gain more, and are as far away as the others would be at their gain."""
    gain = np.array([0.2, 0.3, 0.4, 0.1, 0.2, 0.3])
    found = at_equal_gain(np.broadcast_to(np.exp(9 * gain)[:, None, None], (6, 2, 5)), exactly(gain), ONLINE)
    assert found.ratio == pytest.approx(1)


@pytest.mark.parametrize(
    ("gain", "online", "status"),
    [
        (GAIN, np.array([True, False, False, False, False, False]), "too few policies"),
        (GAIN, np.ones(6, dtype=bool), "too few policies"),
        (np.array([0.5, 0.6, 0.7, 0.1, 0.2, 0.3]), ONLINE, "no common gain"),
    ],
)
def test_what_cannot_be_compared_is_not(gain: np.ndarray, online: np.ndarray, status: str) -> None:
    found = at_equal_gain(np.ones((6, 2, 5)), exactly(gain), online)
    assert found.status == status
    assert np.isnan([found.ratio, found.p_value]).all()
    nobody = at_equal_gain(np.array([]), np.array([]), np.array([], dtype=bool))  # all policies answer as M0 does
    assert nobody.status == "too few policies"


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_the_intervals_hold_the_truth_as_often_as_they_say(n_seeds: int) -> None:
    """Of the ratio, and of one policy's mean divergence (drift.csv)."""
    rng, means = np.random.default_rng(0), np.exp(5 * GAIN) * np.where(ONLINE, 0.5, 1.0)
    ratio = mean = 0
    runs = 300
    for _ in range(runs):
        values = simulated(rng, means, n_seeds, 100)
        changes = rng.random((6, n_seeds, 300)) < GAIN[:, None, None]
        found = at_equal_gain(values, changes - 0.0, ONLINE)
        ratio += found.ratio_low <= 0.5 <= found.ratio_high
        low, high = mean_interval(values[0])
        mean += low <= means[0] <= high
    assert min(ratio, mean) > 0.9 * runs


def test_gains_that_are_not_exact_widen_the_interval() -> None:
    """Where the slope is steep and problems are few."""
    rng, means = np.random.default_rng(0), np.exp(10 * GAIN)
    values = np.broadcast_to(means[:, None, None], (6, 2, 40)) * rng.lognormal(0, 0.1, (6, 2, 40))
    noisy = GAIN[:, None, None] + rng.permuted(np.tile([0.4, -0.4], (6, 2, 20)), axis=2)
    exact, found = (at_equal_gain(values, change, ONLINE) for change in (exactly(GAIN, 2, 40), noisy))
    assert found.ratio == pytest.approx(exact.ratio)
    assert found.ratio_high / found.ratio_low > 1.5 * exact.ratio_high / exact.ratio_low
