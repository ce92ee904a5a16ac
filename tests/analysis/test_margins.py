"""How much worse than the best a policy is at least and at most: by hand, as laws, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.analysis.comparisons import compare, margins_behind_best

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
    smallest = margins_behind_best(outcomes)
    assert pd.DataFrame(smallest)["behind"].tolist() == pytest.approx([0.4, -0.25, 0.25])
    # Two others, so each bound is one-sided at 2.5 %: the end of a two-sided 95 % interval.
    for i in (0, 2):
        lead = compare(outcomes[1], outcomes[i])
        assert (smallest[i].at_least, smallest[i].at_most) == pytest.approx((lead.ci_low, lead.ci_high))
    assert (smallest[1].at_least, smallest[1].at_most) == (0, 0)  # it is shown to be the best
    (alone,) = margins_behind_best(answers(80))
    assert (alone.behind, alone.at_least, alone.at_most) == (0, 0, 0)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), seeds=st.integers(1, 4))
def test_laws(seed: int, n: int, seeds: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = [(rng.random((seeds, 60)) < rng.uniform(0.4, 0.7)).astype(float) for _ in range(n)]
    margins = margins_behind_best(outcomes)
    assert pd.DataFrame(margins)["at_least"].min() == 0  # some policy may be the best
    for one in margins:
        # One question of either kind is added.
        assert one.at_least <= max(one.behind * 60 / 62, 0) <= one.at_most + 1e-12


@pytest.mark.parametrize(
    ("n_seeds", "seed_effect", "truth"),
    [(1, 0.0, [0.5] * 4), (2, 0.015, [0.5, 0.5, 0.58, 0.55]), (5, 0.015, [0.5] * 4), (8, 0.015, [0.5] * 4)],
)
def test_all_bounds_hold_at_once_in_19_experiments_of_20(n_seeds: int, seed_effect: float, truth: list[float]) -> None:
    rng = np.random.default_rng(5)
    runs = 150
    wrong = 0
    for _ in range(runs):
        margins = pd.DataFrame(margins_behind_best(grid(rng, truth, n_seeds, seed_effect)))
        wrong += bool((max(truth) - np.array(truth) > margins["at_most"]).any())
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.001


def test_the_best_policy_is_in_the_set_in_19_experiments_of_20() -> None:
    rng = np.random.default_rng(6)
    runs = 150
    missed = 0
    excluded = 0
    for _ in range(runs):
        margins = margins_behind_best(grid(rng, [0.6, 0.6, 0.5, 0.4], 5, 0.015))
        missed += min(margins[0].at_least, margins[1].at_least) > 0
        excluded += margins[3].at_least > 0
    assert binomtest(missed, runs, 0.05, alternative="greater").pvalue > 0.001
    assert excluded > 0.9 * runs
