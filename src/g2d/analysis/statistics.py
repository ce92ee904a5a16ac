"""95 % intervals over crossed seeds and questions, standard errors, and Holm's correction."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import stdev

import numpy as np
import scipy

from g2d.analysis.crossed import clustered, effective_questions, mean_squares

RESAMPLES = 2000
LEVEL = 0.05  # significance level
LOWER, UPPER = (1 - 0.95) / 2, (1 + 0.95) / 2  # the quantiles of an interval of 95 %


def require_answers(values: np.ndarray) -> np.ndarray:
    """Return (n_seeds, n_questions) values as floats; ValueError if they have another shape or are not all finite."""
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"expected a non-empty (seeds, questions) array, not shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("some answers are missing: every seed must have answered every question")
    return values


def resample(
    values: np.ndarray, weights: np.ndarray | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Return bootstrap means over seeds and questions, (resamples,), both resampled independently (crossed).

    A mean is w_seeds' V w_questions with multinomial weights (the pigeonhole bootstrap: Owen 2007, section 3). Drawing
    n - 1 of n seeds or questions makes the variance of each factor unbiased (Rao and Wu 1988, section 2). The noise of
    single answers counts up to three times (McCullagh 2000). Equal shapes and `seed` give equal resamples, so functions
    of several means can be resampled together.

    Args:
        values: (n_seeds, n_questions), finite.
        weights: as for `mean_interval`; NaN in resamples in which the weights of a drawn seed are all 0.
    """
    values = require_answers(values)
    drawn_seeds, drawn_questions = _draws(*values.shape, resamples, seed)
    totals = drawn_questions @ values.T
    if weights is None:
        means = totals / drawn_questions[0].sum()
    else:
        denominators = drawn_questions @ np.asarray(weights, dtype=float).T
        means = np.divide(totals, denominators, out=np.full_like(totals, np.nan), where=denominators > 0)
        means = np.where(drawn_seeds > 0, means, 0)
    return np.einsum("rs,rs->r", drawn_seeds, means) / drawn_seeds[0].sum()


def mean_interval(
    values: np.ndarray, weights: np.ndarray | None = None, clusters: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the 95 % t interval of a mean over crossed seeds and questions, or over questions with one seed.

    Args:
        values: (n_seeds, n_questions), finite.
        weights: array of the same shape, not negative. A seed's mean is then sum(values) / sum(weights), with an
            interval by linearisation (Cochran 1977, eq. 6.12).
        clusters: cluster of each question.

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
    values = clustered(values, clusters)
    n_seeds, n_questions = values.shape
    if n_questions == 1:
        return math.nan, math.nan
    if n_seeds == 1:
        variance, degrees = float(values.var(ddof=1)) / n_questions, n_questions - 1.0
    else:
        variance, degrees = crossed_variance(values)
    middle, reach = float(values.mean()), float(scipy.special.stdtrit(degrees, UPPER)) * math.sqrt(variance)
    return middle - reach, middle + reach


def crossed_variance(values: np.ndarray) -> tuple[float, float]:
    """Return the variance of the mean of (n_seeds, n_questions) crossed random values, at least two of each, and its
    degrees of freedom (Satterthwaite 1946, eq. 17).

    It is (MS_seeds + MS_questions - MS_rest) / (seeds questions), with negative components set to 0 (Searle, Casella
    and McCulloch 1992, section 4.3).
    """
    n_seeds, n_questions = values.shape
    seeds, questions, rest = mean_squares(values)
    total, uncertainty = rest, 0.0
    for square, degrees in ((seeds, n_seeds - 1), (questions, n_questions - 1)):
        if square > rest:
            total += square - rest
            uncertainty += square**2 / degrees
    return total, total**2 / uncertainty if uncertainty else float((n_seeds - 1) * (n_questions - 1))


def shrunk_together(rows: np.ndarray) -> np.ndarray:
    """Shrink rows of resampled values, (rows, resamples), towards their common mean by the part of their scatter that
    is noise (empirical Bayes, as Stein's estimator; Efron and Morris 1973). NaN marks a row without a value.

    The highest of several estimates is biased upwards.
    """
    centers = np.nanmean(rows, axis=1, keepdims=True)
    scatter = float(((centers - centers.mean()) ** 2).sum())
    whole = rows[:, np.isfinite(rows).all(axis=0)]
    noise = float((whole - whole.mean(axis=0)).var(axis=1).sum()) if whole.size else math.inf
    kept = max(0.0, 1 - noise / scatter) if scatter > 0 else 0.0
    return np.asarray(centers.mean() + kept * (centers - centers.mean()) + math.sqrt(kept) * (rows - centers))


def percentile_interval(means: np.ndarray) -> tuple[float, float]:
    """Return the central interval of a bootstrap distribution (Efron and Tibshirani 1993, eq. 13.5), without NaN."""
    means = means[np.isfinite(means)]
    if means.size == 0:
        return math.nan, math.nan
    low, high = np.quantile(means, [LOWER, UPPER])
    return float(low), float(high)


def accuracy_interval(correct: np.ndarray, clusters: np.ndarray | None = None) -> tuple[float, float]:
    """Return the t interval of an accuracy, from (n_seeds, n_questions) shares of right answers.

    Two right and two wrong questions are added, as by Agresti and Coull (1998) for one proportion. The variance is
    `crossed_variance`, at most the variance of a crossed bootstrap (Owen 2007). docs/simulations.md has the coverage.
    """
    correct = np.asarray(correct, dtype=float)
    n_seeds, n_questions = correct.shape
    by_question = correct.mean(axis=0)
    n, most_degrees = effective_questions(by_question, clusters)
    if clusters is None:
        most_degrees += 4
    total, share = n + 4, n / n_questions
    middle = (float(by_question.sum()) * share + 2) / total
    questions = ((float(by_question @ by_question) * share + 2) / total - middle**2) / total
    reach = float(scipy.special.stdtrit(most_degrees, UPPER)) * math.sqrt(questions)
    if n_seeds > 1 and n_questions > 1:
        cells = clustered(correct, clusters)
        seeds, _, noise = mean_squares(cells)
        variance, degrees = crossed_variance(cells)
        added = max(questions - float(cells.mean(axis=0).var(ddof=1)) / cells.shape[1], 0.0)
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


def part_interval(successes: int, n: int, population: int) -> tuple[float, float]:
    """Return the exact interval of a share in a finite population, from n members drawn without replacement.

    The method is from Wright 1991, "Exact confidence bounds when sampling from small finite universes"; NaN for n = 0.

    Raises:
        ValueError: more members are known than there are.
    """
    if n > population:
        raise ValueError(f"{n} known members of a population of {population}")
    if n == 0:
        return math.nan, math.nan
    totals = np.arange(successes, population - n + successes + 1)
    as_many = scipy.stats.hypergeom.sf(successes - 1, population, totals, n) > LOWER
    as_few = scipy.stats.hypergeom.cdf(successes, population, totals, n) > LOWER
    likely = totals[as_many & as_few]
    return float(likely[0] / population), float(likely[-1] / population)


@functools.lru_cache(maxsize=8)
def _draws(n_seeds: int, n_questions: int, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each seed and question is drawn, (resamples, n) each; n - 1 draws, at least one."""
    rng = np.random.default_rng(seed)

    def draws(n: int) -> np.ndarray:
        return rng.multinomial(max(n - 1, 1), np.full(n, 1 / n), size=resamples).astype(float)

    questions = draws(n_questions)
    return draws(n_seeds), questions


def standard_deviation(values: Sequence[float] | np.ndarray) -> float | None:
    """Return the sample standard deviation (ddof=1); None for fewer than two values, exactly 0 if all are equal."""
    return stdev(map(float, values)) if len(values) > 1 else None


def standard_error(values: Sequence[float] | np.ndarray) -> float | None:
    """Return s / sqrt(n) of independent values; None for fewer than two."""
    deviation = standard_deviation(values)
    return None if deviation is None else deviation / math.sqrt(len(values))


def one_side(low: float, high: float, above: bool, of: float = 0.0) -> tuple[float, float]:
    return (max(low, of), high) if above else (low, min(high, of))


def simultaneous(
    p_values: Sequence[float], intervals: Sequence[tuple[float, float]], effects: Sequence[float]
) -> list[tuple[float, float, float]]:
    """Return Holm's p-value and the ends of a simultaneous interval for each member of a family, from uncorrected
    p-values, Bonferroni's intervals and estimates.

    If Holm's procedure rejects, an interval that contains 0 ends there (Strassburger and Bretz 2008), so 0 is inside
    exactly if the corrected p is above `LEVEL`.
    """
    return [
        (float(p), *(one_side(*ends, effect > 0) if p <= LEVEL else ends))
        for p, ends, effect in zip(holm(p_values), intervals, effects, strict=True)
    ]


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's step-down adjustment of p-values, in their order (Holm 1979, section 3)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]))
    return adjusted
