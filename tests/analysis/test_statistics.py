"""Intervals against the binomial they must agree with, and correlations against the paper's own rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from g2d.statistics import hierarchical_bootstrap, pearson, standard_deviation, standard_error

from .frames import RECOMPUTED_CORRELATIONS, published


@pytest.mark.parametrize(("correct", "n"), [(250, 500), (312, 500), (1200, 1319), (30, 60)])
def test_one_seed_agrees_with_wilsons_interval(correct, n):
    answers = np.arange(n)[None] < correct
    wilson = binomtest(correct, n).proportion_ci(method="wilson")
    assert hierarchical_bootstrap(answers) == pytest.approx((wilson.low, wilson.high), abs=0.25 / math.sqrt(n))


def test_coverage_of_one_seed_at_a_known_truth():
    rng = np.random.default_rng(0)
    truth, runs = 0.6, 300
    intervals = [hierarchical_bootstrap(rng.random((1, 200)) < truth, resamples=400, seed=i) for i in range(runs)]
    covered = sum(low <= truth <= high for low, high in intervals)
    assert binomtest(covered, runs, 0.95).pvalue > 0.001


def test_coverage_with_crossed_seeds_and_questions():
    """Accuracy of seed s on question q is clip(seed effect + difficulty); truth is its mean over both."""
    rng = np.random.default_rng(1)
    truth, runs, covered = 0.6, 200, 0
    for i in range(runs):
        seeds, questions = rng.normal(0, 0.03, (8, 1)), rng.normal(0, 0.1, (1, 150))
        answers = rng.random((8, 150)) < truth + seeds + questions
        low, high = hierarchical_bootstrap(answers, resamples=400, seed=i)
        covered += low <= truth <= high
    assert covered / runs > 0.9


def test_seeds_that_disagree_widen_the_interval():
    agreeing = np.tile(np.arange(100) < 50, (2, 1))
    disagreeing = np.stack([np.arange(100) < 30, np.arange(100) < 70])
    widths = [high - low for low, high in map(hierarchical_bootstrap, (agreeing, disagreeing))]
    assert widths[1] > 1.5 * widths[0]


def test_when_all_agree_the_interval_has_no_width():
    assert hierarchical_bootstrap(np.ones((3, 20))) == (1, 1)
    assert hierarchical_bootstrap(np.zeros((1, 1))) == (0, 0)


@pytest.mark.parametrize("array", [np.ones(3), np.ones((0, 3)), np.ones((3, 0))])
def test_the_shape_is_checked(array):
    with pytest.raises(ValueError, match="shape"):
        hierarchical_bootstrap(array)


def test_a_missing_answer_is_not_a_wrong_one():
    with pytest.raises(ValueError, match="missing"):
        hierarchical_bootstrap(np.array([[1, np.nan]]))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 30), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_the_interval_contains_the_estimate_and_repeats(n_seeds, n_questions, seed, p):
    answers = np.random.default_rng(seed).random((n_seeds, n_questions)) < p
    low, high = hierarchical_bootstrap(answers)
    assert 0 <= low <= answers.mean() <= high <= 1
    assert (low, high) == hierarchical_bootstrap(answers)


def test_standard_error_of_answers_is_the_binomial_one():
    answers = np.arange(500) < 300
    assert standard_error(answers) == pytest.approx(math.sqrt(0.6 * 0.4 / 499))
    assert standard_error([1.0]) is None


def test_equal_values_do_not_deviate():
    assert standard_deviation([0.1, 0.1, 0.1]) == 0
    assert standard_deviation([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert standard_deviation([1.0]) is None


def test_the_papers_own_rows_give_other_correlations_than_it_prints():
    """Tables 1 and 2, Qwen2.5-7B: -0.297, 0.397, 0.489 instead of 0.021, 0.253, 0.366; none significant at n = 6."""
    accuracy = published("table1").query("method in ('DPO', 'G2D')")["math500"]
    for row in published("table2_correlations").itertuples():
        found = pearson(published("table2")[row.metric].to_numpy(), accuracy.to_numpy())
        assert found.n == 6
        assert found.r == pytest.approx(RECOMPUTED_CORRELATIONS[row.metric], abs=0.0005)
        assert found.r != pytest.approx(row.pearson_r, abs=0.1)
        assert found.p > 0.05


def test_significance_at_six_points_begins_at_0_811():
    x = np.array([-1, 1, -1, 1, -1, 1.0])
    noise = np.array([1, 1, -1, -1, 0, 0.0])  # orthogonal to x
    for r, significant in ((0.80, False), (0.82, True)):
        y = r * x / np.linalg.norm(x) + math.sqrt(1 - r**2) * noise / np.linalg.norm(noise)
        found = pearson(x, y)
        assert found.r == pytest.approx(r)
        assert (found.p < 0.05) == significant


@pytest.mark.parametrize(
    ("x", "y", "n"),
    [
        ([1, 2], [3, 4], 2),
        ([1, 2, None], [3, 4, 5], 2),
        ([1, 1, 1], [1, 2, 3], 3),
        ([1, 2, 3], [0.3, 0.1 + 0.2, 0.3], 3),
        ([], [], 0),
    ],
)
def test_no_correlation_where_it_is_not_defined(x, y, n):
    assert pearson(x, y) == (None, None, n)


def test_pairs_of_different_length_are_refused():
    with pytest.raises(ValueError, match="3 values against 2"):
        pearson([1, 2, 3], [1, 2])
