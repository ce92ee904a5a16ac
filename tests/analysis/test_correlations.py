"""Correlations within seeds and models, and permutation tests that keep the seeds of a K together."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import binomtest

from g2d.analysis.correlations import fisher_interval, permutation_p, ranks_within, within_correlation


def points(x: np.ndarray, y: np.ndarray, model: str = "m") -> pd.DataFrame:
    """Arrays (seeds, K) as rows."""
    seeds, ks = np.indices(x.shape)
    return pd.DataFrame(
        {"model": model, "seed": seeds.ravel(), "group_size": 2, "K": ks.ravel(), "x": x.ravel(), "y": y.ravel()}
    )


def test_one_subject_is_pearson_and_spearman():
    rng = np.random.default_rng(0)
    x, y, one = rng.normal(size=8), rng.normal(size=8), np.zeros(8)
    expected = stats.pearsonr(x, y)
    assert within_correlation(x, y, one)[:2] == pytest.approx((expected.statistic, expected.pvalue))
    ranked = within_correlation(ranks_within(x, one), ranks_within(y, one), one)
    assert ranked.r == pytest.approx(stats.spearmanr(x, y).statistic)


def test_levels_of_the_subjects_do_not_count():
    """Between subjects the association is perfect and negative, within them perfect and positive (Simpson)."""
    x, y = np.array([0, 1, 2, 10, 11, 12.0]), np.array([100, 101, 102, 0, 1, 2.0])
    assert within_correlation(x, y, np.repeat([0, 1], 3)).r == pytest.approx(1)
    assert np.corrcoef(x, y)[0, 1] < -0.9


def test_degrees_of_freedom_are_those_of_the_published_method():  # n - subjects - 1
    rng = np.random.default_rng(1)
    x, y, subjects = rng.normal(size=12), rng.normal(size=12), np.repeat(np.arange(3), 4)
    correlation = within_correlation(x, y, subjects)
    t = correlation.r * np.sqrt(8 / (1 - correlation.r**2))
    assert correlation.p == pytest.approx(2 * stats.t.sf(abs(t), 8))


@pytest.mark.parametrize(
    ("x", "y", "subjects"),
    [
        ([1, 2], [3, 4], [0, 0]),
        ([1, 1, 1], [1, 2, 3], [0, 0, 0]),
        ([1, 2, 3], [0.3, 0.1 + 0.2, 0.3], [0, 0, 0]),
        ([], [], []),
        ([1, 2, 3, 4], [1, 1, 2, 2], [0, 0, 1, 1]),
        ([1, 2, 3, 4], [1, 1, 2, 2], [0, 1, 2, 3]),
    ],
)
def test_not_defined_without_degrees_of_freedom_or_variation(x, y, subjects):
    assert within_correlation(np.array(x), np.array(y), np.array(subjects)) == (None, None, len(x), None, None)


def test_significance_at_six_points_begins_at_0_811():
    x = np.array([-1, 1, -1, 1, -1, 1.0])
    noise = np.array([1, 1, -1, -1, 0, 0.0])  # orthogonal to x
    for r, significant in ((0.80, False), (0.82, True)):
        y = r * x / np.linalg.norm(x) + math.sqrt(1 - r**2) * noise / np.linalg.norm(noise)
        correlation = within_correlation(x, y, np.zeros(6))
        assert correlation.r == pytest.approx(r)
        assert (correlation.p < 0.05) == significant


def test_the_interval_of_a_correlation_is_scipys():
    rng = np.random.default_rng(0)
    x = rng.normal(size=12)
    y = x + rng.normal(size=12)
    correlation = within_correlation(x, y, np.zeros(12))
    assert (correlation.low, correlation.high) == pytest.approx(tuple(stats.pearsonr(x, y).confidence_interval()))
    ends = [fisher_interval(0.575, 9, p)[0] for p in (0.0505, 0.0495)]  # the t-test decides whether 0 is inside
    assert ends[0] == 0 < ends[1]


def test_all_orders_of_four_points_are_counted():
    x = np.array([[1, 2, 3, 4.0]])
    assert permutation_p(points(x, x), "x", "y") == pytest.approx(2 / 24)
    seeds = np.concatenate([x, x + 10])  # their levels do not count
    assert permutation_p(points(seeds, seeds), "x", "y") == pytest.approx(2 / 24)
    assert permutation_p(points(x, np.array([[1, -1, -1, 1.0]])), "x", "y") == 1


def test_seeds_that_share_their_k_are_permuted_together():
    """Every K has unrelated effects on both sides, so the naive p-value rejects far too often."""
    rng = np.random.default_rng(3)
    runs, naive, permuted = 60, 0, 0
    for _ in range(runs):
        x, y = (rng.normal(size=(1, 5)) + rng.normal(0, 0.3, (5, 5)) for _ in range(2))
        table = points(x, y)
        naive += within_correlation(table["x"].to_numpy(), table["y"].to_numpy(), table["seed"].to_numpy()).p < 0.05
        permuted += permutation_p(table, "x", "y") < 0.05
    assert naive / runs > 0.2
    assert binomtest(permuted, runs, 0.05, alternative="greater").pvalue > 0.001


def test_models_are_permuted_independently_and_repeatably():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2, 8))
    both = pd.concat([points(x, x, "a"), points(x[:, :4], x[:, :4], "b")])
    assert permutation_p(both, "x", "y") == permutation_p(both, "x", "y") == 1 / 10_000


def test_an_incomplete_grid_cannot_be_permuted():
    x = np.arange(6.0).reshape(2, 3)
    assert permutation_p(points(x, x).iloc[1:], "x", "y") is None
