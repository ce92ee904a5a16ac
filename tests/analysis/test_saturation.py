"""A sigmoid of accuracy against K: exact fits, coverage, and curves that are not shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.analysis.saturation import fitted, saturation, sigmoid

STEPS = (25, 50, 100, 200, 400)


def grid(
    rng: np.random.Generator, accuracies: Sequence[float], n_seeds: int, n_questions: int = 300, sd: float = 0.01
) -> list[np.ndarray]:
    """Answers of M0, (1, n_questions), and at every K; questions differ in difficulty, trainings by their seed."""
    difficulty = rng.uniform(-0.25, 0.25, n_questions)
    effects = rng.normal(0, sd, (len(accuracies), n_seeds, 1)) * [[[0.0]], *[[[1.0]]] * (len(accuracies) - 1)]
    outcomes = [
        rng.random((n_seeds, n_questions)) < accuracy + difficulty + effect
        for accuracy, effect in zip(accuracies, effects, strict=True)
    ]
    return [rows.astype(float) for rows in (outcomes[0][:1], *outcomes[1:])]


def curve(asymptote: float, midpoint: float, slope: float) -> list[float]:
    return [0.4, *sigmoid(np.array(STEPS, dtype=float), 0.4, asymptote, midpoint, slope)]


@settings(deadline=None, max_examples=15)
@given(asymptote=st.floats(0.5, 0.95), midpoint=st.floats(15, 300), slope=st.floats(0.8, 6))
def test_the_curve_of_exact_accuracies_is_found(asymptote: float, midpoint: float, slope: float) -> None:
    start, *accuracies = curve(asymptote, midpoint, slope)
    fits = fitted(np.array(STEPS, dtype=float), start, np.array(accuracies))
    assert sigmoid(np.array(STEPS, dtype=float), start, *fits) == pytest.approx(accuracies, abs=2e-3)
    if 25 <= midpoint <= 200 and slope > 1.5:  # elsewhere other curves pass close by
        assert fits == pytest.approx((asymptote, midpoint, slope), rel=0.1)


def test_a_sigmoid_by_hand() -> None:
    """Half of the way at the midpoint, and 90 % of it at midpoint x 9^(1 / slope)."""
    assert sigmoid(np.array([60.0, 180.0]), 0.4, 0.7, 60, 2).tolist() == pytest.approx([0.55, 0.67])


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_intervals_hold_the_truth_in_19_experiments_of_20(n_seeds: int) -> None:
    rng, runs = np.random.default_rng(3), 30
    truth = {"asymptote": 0.7, "midpoint": 60.0, "slope": 2.0, "nearly": 180.0}
    events: Counter[str] = Counter()
    for _ in range(runs):
        sd = 0.01 if n_seeds > 1 else 0.0  # intervals of one seed are about these weights
        before, *answers = grid(rng, curve(0.7, 60, 2), n_seeds, sd=sd)
        fits = saturation(STEPS, before, answers)
        events[fits.status] += 1
        for name, value in truth.items():
            estimate = getattr(fits, name)
            events[name] += bool(estimate.low > value or estimate.high < value)  # an open end holds everything
    for name in (*truth, "no sigmoid"):
        assert binomtest(events[name], runs, 0.05, alternative="greater").pvalue > 0.001, name
    assert events["fits"] > 0.7 * runs


@pytest.mark.parametrize(
    ("accuracies", "status"),
    [
        ([0.4] * 6, "no change"),
        (curve(0.9, 800, 1), "not saturated"),
        ([0.4, 0.5, 0.6, 0.7, 0.7, 0.45], "no sigmoid"),
        ([1.1 - accuracy for accuracy in curve(0.7, 60, 2)], "fits"),  # towards less, too
    ],
    ids=["flat", "rising", "collapsed", "falling"],
)
def test_numbers_that_mean_nothing_are_told(accuracies: list[float], status: str) -> None:
    rng = np.random.default_rng(0)
    statuses = Counter()
    for _ in range(5):
        before, *answers = grid(rng, accuracies, n_seeds=3)
        statuses[saturation(STEPS, before, answers).status] += 1
    assert statuses[status] >= 4


def test_equal_answers_of_all_have_no_curve() -> None:
    right = np.ones((1, 20))
    assert saturation(STEPS, right, [right] * 5).status == "no change"
