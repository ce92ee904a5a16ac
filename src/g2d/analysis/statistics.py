"""95 % intervals over crossed seeds and questions, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

import numpy as np
import scipy

from g2d.analysis.crossed import mean_squares

LEVEL = 0.05  # significance level
UPPER = (1 + 0.95) / 2  # quantile of an interval of 95 %


def require_answers(values: np.ndarray) -> np.ndarray:
    """Return (n_seeds, n_questions) values as floats; ValueError if they have another shape or are not all finite."""
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"expected a non-empty (seeds, questions) array, not shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("some answers are missing: every seed must have answered every question")
    return values


def mean_interval(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Return the 95 % t interval of a mean over crossed seeds and questions, or over questions with one seed.

    Args:
        values: (n_seeds, n_questions), finite.
        weights: array of the same shape, not negative. A seed's mean is then sum(values) / sum(weights), with an
            interval by linearisation (Cochran 1977, eq. 6.12).

    Returns:
        Both ends; NaN with one question, or if the weights of a seed are all 0.
    """
    values = require_answers(values)
    if weights is not None:
        totals = np.asarray(weights, dtype=float).mean(axis=1, keepdims=True)
        if not (totals > 0).all():
            return math.nan, math.nan
        ratios = values.mean(axis=1, keepdims=True) / totals
        values = ratios + (values - ratios * weights) / totals
    n_seeds, n_questions = values.shape
    if n_questions == 1:
        return math.nan, math.nan
    if n_seeds == 1:
        variance = float(values.var(ddof=1)) / n_questions
        degrees = n_questions - 1.0
    else:
        variance, degrees = crossed_variance(values)
    middle = float(values.mean())
    reach = float(scipy.special.stdtrit(degrees, UPPER)) * math.sqrt(variance)
    return middle - reach, middle + reach


def crossed_variance(values: np.ndarray) -> tuple[float, float]:
    """Return the variance of the mean of (n_seeds, n_questions) crossed random values, at least two of each, and its
    degrees of freedom (Satterthwaite 1946, eq. 17).

    It is (MS_seeds + MS_questions - MS_rest) / (seeds questions), with negative components set to 0 (Searle, Casella
    and McCulloch 1992, section 4.3).
    """
    n_seeds, n_questions = values.shape
    seeds, questions, rest = mean_squares(values)
    total = rest
    uncertainty = 0.0
    for square, degrees in ((seeds, n_seeds - 1), (questions, n_questions - 1)):
        if square > rest:
            total += square - rest
            uncertainty += square**2 / degrees
    if uncertainty == 0:
        return total, float((n_seeds - 1) * (n_questions - 1))
    return total, total**2 / uncertainty


def accuracy_interval(correct: np.ndarray) -> tuple[float, float]:
    """Return the t interval of an accuracy, from (n_seeds, n_questions) shares of right answers.

    Two right and two wrong questions are added, as by Agresti and Coull (1998) for one proportion. The variance is
    `crossed_variance`, at most the variance of a crossed bootstrap (Owen 2007). docs/simulations.md has the coverage.
    """
    correct = np.asarray(correct, dtype=float)
    n_seeds, n_questions = correct.shape
    by_question = correct.mean(axis=0)
    total = n_questions + 4
    most_degrees = n_questions + 3
    middle = (float(by_question.sum()) + 2) / total
    questions = ((float(by_question @ by_question) + 2) / total - middle**2) / total
    reach = float(scipy.special.stdtrit(most_degrees, UPPER)) * math.sqrt(questions)
    if n_seeds > 1 and n_questions > 1:
        seeds, _, noise = mean_squares(correct)
        variance, degrees = crossed_variance(correct)
        added = max(questions - float(by_question.var(ddof=1)) / n_questions, 0.0)
        reach = min(
            float(scipy.special.stdtrit(min(degrees, most_degrees), UPPER)) * math.sqrt(variance + added),
            float(scipy.special.ndtri(UPPER)) * math.sqrt(seeds + questions + noise),
        )
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the interval of a binomial share (Wilson 1927; Brown, Cai and DasGupta 2001, eq. 4); NaN for n = 0."""
    if n == 0:
        return math.nan, math.nan
    interval = scipy.stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def standard_deviation(values: Sequence[float] | np.ndarray) -> float | None:
    """Return the sample standard deviation (ddof=1); None for fewer than two values, exactly 0 if all are equal."""
    return stdev(map(float, values)) if len(values) > 1 else None


def simultaneous(
    p_values: Sequence[float], intervals: Sequence[tuple[float, float]], effects: Sequence[float]
) -> list[tuple[float, float, float]]:
    """Return Holm's p-value and the ends of a simultaneous interval for each member of a family, from uncorrected
    p-values, Bonferroni's intervals and estimates.

    If Holm's procedure rejects, an interval that contains 0 ends there (Strassburger and Bretz 2008), so 0 is inside
    exactly if the corrected p is above `LEVEL`.
    """
    members: list[tuple[float, float, float]] = []
    for p, ends, effect in zip(holm(p_values), intervals, effects, strict=True):
        low, high = _beyond_zero(*ends, effect > 0) if p <= LEVEL else ends
        members.append((float(p), low, high))
    return members


def _beyond_zero(low: float, high: float, above: bool) -> tuple[float, float]:
    return (max(low, 0.0), high) if above else (low, min(high, 0.0))


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's step-down adjustment of p-values, in their order (Holm 1979, section 3)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]))
    return adjusted
