"""How much worse than the best a policy can be: bounds by hand, as laws, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.analysis.comparisons import compare, smallest_margins

N_QUESTIONS = 200


def answers(*rights: int) -> list[np.ndarray]:
    """One seed each; a policy has the first so many questions right, so the better one has all of the other's."""
    return [(np.arange(N_QUESTIONS) < right)[None].astype(float) for right in rights]


def grid(rng: np.random.Generator, accuracies: list[float], n_seeds: int, seed_effect: float) -> list[np.ndarray]:
    """Policies of the given true accuracies on questions of different difficulty."""
    difficulty = rng.normal(0, 0.15, N_QUESTIONS)
    difficulty -= difficulty.mean()
    policies = []
    for accuracy in accuracies:
        shift = rng.normal(0, 0.05, N_QUESTIONS)
        chance = accuracy + difficulty + (shift - shift.mean()) + rng.normal(0, seed_effect, (n_seeds, 1))
        policies.append((rng.random((n_seeds, N_QUESTIONS)) < chance.clip(0, 1)).astype(float))
    return policies


def test_by_hand() -> None:
    outcomes = answers(80, 160, 110)
    smallest = smallest_margins(outcomes)
    assert [one.behind for one in smallest] == pytest.approx([0.4, -0.25, 0.25])
    # Two others, so each bound is one-sided at 2.5 %: the end of a two-sided 95 % interval.
    assert smallest[0].margin_shown == pytest.approx(compare(outcomes[1], outcomes[0]).ci_high)
    assert smallest[2].margin_shown == pytest.approx(compare(outcomes[1], outcomes[2]).ci_high)
    assert smallest[1].margin_shown == 0  # it is shown to be the best
    (alone,) = smallest_margins(answers(80))
    assert (alone.behind, alone.margin_shown) == (0, 0)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), seeds=st.integers(1, 4))
def test_laws(seed: int, n: int, seeds: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = [(rng.random((seeds, 60)) < rng.uniform(0.4, 0.7)).astype(float) for _ in range(n)]
    for one in smallest_margins(outcomes):
        assert one.margin_shown >= max(one.behind * 60 / 62, 0)  # one question of either kind is added


@pytest.mark.parametrize(
    ("n_seeds", "seed_effect", "truth"),
    [(1, 0.0, [0.5] * 4), (2, 0.015, [0.5, 0.5, 0.58, 0.55]), (5, 0.015, [0.5] * 4), (8, 0.015, [0.5] * 4)],
)
def test_all_bounds_hold_at_once_in_19_experiments_of_20(n_seeds: int, seed_effect: float, truth: list[float]) -> None:
    rng = np.random.default_rng(5)
    runs, wrong = 150, 0
    for _ in range(runs):
        outcomes = grid(rng, truth, n_seeds, seed_effect)
        smallest = smallest_margins(outcomes)
        wrong += any(max(truth) - accuracy > one.margin_shown for accuracy, one in zip(truth, smallest, strict=True))
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.001
