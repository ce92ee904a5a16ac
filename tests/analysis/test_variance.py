"""The components of variance: by hand, as laws, and with intervals that cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.analysis.power import Components, decompose


def answers(
    rng: np.random.Generator, components: Components, shape: tuple[int, int, int], question: float = 0.2
) -> np.ndarray:
    """Normal answers with these components, and variances that all policies have in common."""
    n_policies, n_seeds, n_questions = shape
    common = rng.normal(0, question, n_questions) + rng.normal(0, 0.05, (n_seeds, 1)) + 0.5
    by_policy = rng.normal(0, math.sqrt(components.policy_question), (n_policies, 1, n_questions))
    by_seed = rng.normal(0, math.sqrt(components.policy_seed), (n_policies, n_seeds, 1))
    return common + by_policy + by_seed + rng.normal(0, math.sqrt(components.answer), shape)


def test_by_hand() -> None:
    """Two policies, two seeds, two questions: each interaction is one contrast of the eight answers, and its mean
    square is the square of the contrast over 8."""
    y = np.array([[[1.0, 0.25], [0.5, 0.75]], [[0.0, 1.0], [0.25, 0.5]]])
    policy, other = np.array([1, -1])[:, None, None], np.array([1, -1])
    squares = {
        "question": (y * policy * other).sum() ** 2 / 8,
        "seed": (y * policy * other[:, None]).sum() ** 2 / 8,
        "answer": (y * policy * other * other[:, None]).sum() ** 2 / 8,
    }
    estimates = decompose(y).components
    assert estimates.answer == pytest.approx(squares["answer"])
    assert estimates.policy_question == pytest.approx(max(squares["question"] - squares["answer"], 0) / 2)
    assert estimates.policy_seed == pytest.approx(max(squares["seed"] - squares["answer"], 0) / 2)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(2, 4), st.integers(1, 4), st.integers(2, 12)),
    common=st.floats(-1, 1),
)
def test_what_policies_have_in_common_does_not_matter(seed: int, shape: tuple[int, int, int], common: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.random(shape)
    shared = rng.normal(size=shape[1:]) + common * rng.normal(size=(shape[0], 1, 1))
    first, second = decompose(y).components, decompose(y + shared).components
    for name in ("policy_question", "policy_seed", "answer"):
        assert getattr(second, name) == pytest.approx(getattr(first, name), abs=1e-9, nan_ok=True)
    if shape[1] == 1:
        assert math.isnan(first.policy_seed)


def test_estimates_are_right_on_average_and_their_interval_covers() -> None:
    truth, rng, runs = Components(0.02, 0.015**2, 0.03), np.random.default_rng(1), 200
    estimates = [decompose(answers(rng, truth, (4, 3, 300))) for _ in range(runs)]
    for name in ("policy_question", "answer"):
        mean = np.mean([getattr(one.components, name) for one in estimates])
        assert mean == pytest.approx(getattr(truth, name), rel=0.02)
    assert np.mean([one.components.policy_seed for one in estimates]) == pytest.approx(truth.policy_seed, rel=0.15)
    covered = sum(one.seed_sd_low <= truth.seed_sd <= one.seed_sd_high for one in estimates)
    assert binomtest(covered, runs, 0.95).pvalue > 0.001
    # The variance of an accuracy over questions: 0.04 is common to all policies, 0.02 + 0.03 / 3 is not.
    assert np.mean([one.cancelled for one in estimates]) == pytest.approx(4 / 7, abs=0.02)


def test_the_variance_of_a_difference_is_that_of_repeated_experiments() -> None:
    truth, rng = Components(0.02, 0.01**2, 0.05), np.random.default_rng(2)
    estimates = []
    for _ in range(1500):
        y = answers(rng, truth, (2, 3, 40))
        estimates.append(y[0].mean() - y[1].mean())
    assert np.var(estimates) == pytest.approx(sum(truth.of_difference(3, 40)), rel=0.12)
