"""The statistics behind the tables: intervals over seeds and questions, standard errors, Pearson's r.

Accuracy varies for two crossed reasons: which questions the benchmark happens to hold (every policy and seed sees the
same ones) and which seed trained the policy. An interval that resamples only one of them is too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev
from typing import NamedTuple

import numpy as np
from scipy import stats


def hierarchical_bootstrap(
    correct: np.ndarray, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean, seeds and questions resampled independently (crossed).

    A resample gives every seed and every question a multinomial weight, so its mean is w_seeds' C w_questions, and
    all resamples are two matrix products. With one seed only the questions are resampled: the interval then says
    nothing about other seeds. A percentile interval is somewhat narrow for few seeds, and has no width where all
    answers agree: 100 % of 20 questions is [1, 1] here.

    Args:
        correct: (n_seeds, n_questions), the share of correct answers per seed and question, in 0..1.
        level: coverage.
        resamples: number of bootstrap resamples.
        seed: of the resampling.

    Returns:
        The interval's ends.

    Raises:
        ValueError: the array is not two-dimensional, is empty or holds something that is not a number.
    """
    correct = np.asarray(correct, dtype=float)
    if correct.ndim != 2 or correct.size == 0:
        raise ValueError(f"expected a non-empty (seeds, questions) array, not shape {correct.shape}")
    if not np.isfinite(correct).all():
        raise ValueError("some answers are missing: every seed must have answered every question")
    rng = np.random.default_rng(seed)
    n_seeds, n_questions = correct.shape
    question_weights = _bootstrap_weights(rng, n_questions, resamples)
    seed_weights = _bootstrap_weights(rng, n_seeds, resamples)
    means = np.einsum("rs,rs->r", seed_weights, question_weights @ correct.T) / correct.size
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _bootstrap_weights(rng: np.random.Generator, n: int, resamples: int) -> np.ndarray:
    """How often each of n items is drawn in n draws with replacement; (resamples, n), rows sum to n."""
    return rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(float)


def standard_deviation(values: Sequence[float] | np.ndarray) -> float | None:
    """Sample standard deviation (ddof=1), None for fewer than two values; exactly 0 where all are equal."""
    return stdev(map(float, values)) if len(values) > 1 else None


def standard_error(values: Sequence[float] | np.ndarray) -> float | None:
    """Standard error of the mean of independent values, s / sqrt(n); None for fewer than two."""
    deviation = standard_deviation(values)
    return None if deviation is None else deviation / math.sqrt(len(values))


class Correlation(NamedTuple):
    """Pearson's r with its two-sided p-value under independence; both None where r is not defined."""

    r: float | None
    p: float | None
    n: int  # pairs in which both values are known


def pearson(x: Sequence[float | None] | np.ndarray, y: Sequence[float | None] | np.ndarray) -> Correlation:
    """Pearson's correlation of the pairs in which both values are known (not None or NaN).

    Not defined for fewer than three pairs or where one side does not vary (to within rounding). At the paper's six
    values of K, |r| must exceed 0.811 to be significant at 5 %.

    Raises:
        ValueError: x and y differ in length.
    """
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} values against {len(b)}")
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    n = len(a)
    if n < 3 or _constant(a) or _constant(b):
        return Correlation(None, None, n)
    result = stats.pearsonr(a, b)
    return Correlation(float(result.statistic), float(result.pvalue), n)


def _constant(values: np.ndarray) -> bool:
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())
