"""Intervals and tests over crossed seeds and questions, and Holm's correction.

The half width at level alpha of the mean difference d of a (seeds, questions) array (`error_of_difference`) is

    h(alpha)^2 = t_q(alpha)^2 Q + t_s(alpha)^2 S

Q is the variance from questions beyond the noise of single answers, S the variance from seeds including that noise.
Each quantile has the degrees of freedom of its variance (Zou and Donner 2008, "Construction of confidence limits about
effect measures", eq. 3). The p-value of d is the alpha at which h(alpha) = |d|, so test and interval agree.
Questions that are not independent form a cluster, and then Q is over clusters (`by_cluster`). docs/simulations.md has
error rates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import stdev

import numpy as np
import scipy

LEVEL = 0.05  # significance level
UPPER = (1 + 0.95) / 2  # quantile of an interval of 95 %
POWER = 0.8  # probability with which a true difference is found
MOST_SEEDS = 1000  # of `seeds_to_find`
SMALLEST_P = 1e-100


@dataclass(frozen=True, slots=True)
class Error:
    """A mean, its variance components, and the degrees of freedom of their estimates."""

    middle: float  # the mean, in -1..1
    questions: float  # variance from questions; with several seeds, beyond the noise of single answers
    question_degrees: int
    seeds: float = 0.0  # variance from seeds, including the noise of single answers; 0 with one seed
    seed_degrees: float = 1
    noise: float = 0.0  # variance from single answers

    @property
    def standard_error(self) -> float:
        """Estimate of the standard deviation of the mean over repeated experiments."""
        return math.sqrt(self.questions + max(self.seeds, self.noise))

    def reach(self, alpha: float) -> float:
        """Return the half width of the interval of level 1 - alpha."""
        q = -float(scipy.special.stdtrit(self.question_degrees, alpha / 2))
        s = -float(scipy.special.stdtrit(self.seed_degrees, alpha / 2))
        # Seeds that agree by chance must not make the interval narrower than an interval over questions.
        return math.hypot(q * math.sqrt(self.questions), max(s * math.sqrt(self.seeds), q * math.sqrt(self.noise)))

    def interval(self, alpha: float) -> tuple[float, float]:
        reach = self.reach(alpha)
        return max(self.middle - reach, -1.0), min(self.middle + reach, 1.0)

    def p_value(self) -> float:
        """Return the two-sided p-value of a mean of 0: the alpha whose `reach` is the distance from it."""
        distance = abs(self.middle)
        ratio = distance / self.standard_error
        degrees = [self.question_degrees, self.seed_degrees if self.seeds else self.question_degrees]
        # p is between the values with all variance at the larger and at the smaller degrees of freedom.
        low = max(2 * float(scipy.special.stdtr(max(degrees), -ratio)), SMALLEST_P)
        high = max(2 * float(scipy.special.stdtr(min(degrees), -ratio)), SMALLEST_P)
        if math.isclose(low, high, rel_tol=1e-12) or self.reach(low) <= distance:
            return low
        first = math.log(low) - 1e-9
        last = min(math.log(high) + 1e-9, 0.0)  # beyond 1 the reach grows again
        if self.reach(math.exp(last)) > distance:  # near p = 1 `stdtr` is not accurate enough
            last = 0.0
        between = scipy.optimize.brentq(lambda x: self.reach(math.exp(x)) - distance, first, last, rtol=1e-14)
        return min(1.0, math.exp(between))

    def power(self, difference: float, alpha: float) -> float:
        """Return the probability of finding a true difference at level alpha, from a noncentral t with Satterthwaite's
        degrees of freedom (1946)."""
        seeds = max(self.seeds, self.noise)
        uncertainty = self.questions**2 / self.question_degrees + seeds**2 / self.seed_degrees
        needed = self.reach(alpha) / self.standard_error
        degrees = self.standard_error**4 / uncertainty
        return float(scipy.stats.nct.sf(needed, degrees, difference / self.standard_error))

    def detectable(self, alpha: float) -> float:
        """Return the true difference that is found with probability `POWER` at level alpha, at most 1."""
        if self.power(1.0, alpha) < POWER:
            return 1.0
        found: float = scipy.optimize.brentq(lambda difference: self.power(difference, alpha) - POWER, 0.0, 1.0)
        return found


# Both kinds of estimates treat seeds and questions as crossed: every seed answers every question. Differences between
# two policies have `error_of_difference`, with tests and power; a single mean has `mean_interval` and
# `accuracy_interval`. They share the analysis of variance in `mean_squares` and the clusters in `by_cluster`.


def seeds_to_find(difference: float, error: Error, alpha: float) -> tuple[int, int]:
    """Return the fewest and the most seeds that find a true difference at level alpha, at most `MOST_SEEDS`, for the
    ends of the 95 % interval of the variance from seeds (chi-squared).

    Args:
        error: of a difference over several seeds.
    """
    ends = scipy.stats.chi2.ppf([UPPER, 1 - UPPER], error.seed_degrees)
    few, many = (error.seeds * (error.seed_degrees + 1) * error.seed_degrees / end for end in ends)

    def finds(n_seeds: int, of_one_seed: float) -> bool:
        planned = replace(error, seeds=of_one_seed / n_seeds, seed_degrees=n_seeds - 1, noise=0.0)
        return planned.power(difference, alpha) >= POWER

    numbers = range(2, MOST_SEEDS)
    fewest, most = (numbers.start + bisect_left(numbers, True, key=lambda n: finds(n, one)) for one in (few, many))
    return fewest, most


def mean_squares(values: np.ndarray) -> tuple[float, float, float]:
    """Return variances of the mean of (n_seeds, n_questions) values from seeds, questions and noise of single answers.

    They are mean squares over the number of values, for at least two seeds (two-way analysis of variance without
    replication; Searle, Casella and McCulloch 1992, section 4.3).
    """
    n_seeds, n_questions = values.shape
    seeds = values.mean(axis=1)
    questions = values.mean(axis=0)
    rest = values - seeds[:, None] - questions + values.mean()
    degrees = (n_seeds - 1) * max(n_questions - 1, 1)
    noise = float((rest**2).sum()) / degrees / values.size
    return float(seeds.var(ddof=1)) / n_seeds, float(questions.var(ddof=min(n_questions - 1, 1))) / n_questions, noise


def by_cluster(values: np.ndarray, clusters: np.ndarray | None) -> np.ndarray:
    """Return the mean of each cluster of questions by seed, (n_seeds, n_clusters); the means over them stay.

    Clusters can differ in size. Deviations from a seed's mean are scaled by size / mean size, which linearises the
    ratio of sums over clusters (Cochran 1977, eq. 6.12; Miller 2024, arXiv 2411.00640, section 2.2).

    Args:
        values: (n_seeds, n_questions).
        clusters: cluster of each question; None if questions are independent.
    """
    if clusters is None:
        return values
    names, positions = np.unique(clusters, return_inverse=True)
    n_clusters = len(names)
    n_seeds, n_questions = values.shape
    if n_clusters == n_questions:
        return values
    means = values.mean(axis=1, keepdims=True)
    sums: np.ndarray = np.zeros((n_clusters, n_seeds))
    np.add.at(sums, positions, (values - means).T)
    grouped: np.ndarray = means + sums.T * (n_clusters / n_questions)
    return grouped


def error_of_difference(values: np.ndarray, clusters: np.ndarray | None = None) -> Error:
    """Return the mean difference between two policies with its error.

    One question gained and one lost are added (Bonett and Price 2012, "Adjusted Wald confidence interval for a
    difference of binomial proportions based on paired data"). Single questions need no other correction; the variance
    over clusters is the unbiased one. A single cluster counts as one question.

    Args:
        values: (n_seeds, n_questions) differences of shares of right answers.
        clusters: cluster of each question (`by_cluster`).
    """
    n_seeds, n_questions = values.shape
    values = by_cluster(values, clusters)
    n_clusters = values.shape[1]
    degrees = question_degrees(n_clusters, n_questions)
    of_clusters = degrees < n_clusters
    question = n_clusters / n_questions if of_clusters else 1.0  # size of an added question, in clusters
    means = values.mean(axis=0)
    total = n_clusters + 2 * question
    middle = float(values.mean()) * n_clusters / total
    questions = ((float(means @ means) + 2 * question**2) / total - middle**2) / total
    if of_clusters:
        questions *= n_clusters / degrees
    if n_seeds == 1:
        return Error(middle, questions, degrees)
    seeds, _, noise = mean_squares(values)
    return Error(middle, max(questions - noise, 0.0), degrees, seeds, min(n_seeds - 1, degrees), noise)


def question_degrees(n_clusters: int, n_questions: int) -> int:
    """Return the degrees of freedom of a difference's variance from questions.

    The two added questions count for single questions, but are too small to count beside clusters.
    """
    if 1 < n_clusters < n_questions:
        return n_clusters - 1
    return n_clusters + 1


def require_answers(values: np.ndarray) -> np.ndarray:
    """Return (n_seeds, n_questions) values as floats; ValueError if they have another shape or are not all finite."""
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"expected a non-empty (seeds, questions) array, not shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("some answers are missing: every seed must have answered every question")
    return values


def mean_interval(
    values: np.ndarray, weights: np.ndarray | None = None, clusters: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the 95 % t interval of a mean over crossed seeds and questions, or over questions with one seed.

    Args:
        values: (n_seeds, n_questions), finite.
        weights: array of the same shape, not negative. A seed's mean is then sum(values) / sum(weights), with an
            interval by linearisation (Cochran 1977, eq. 6.12).
        clusters: cluster of each question (`by_cluster`).

    Returns:
        Both ends; NaN with one question or cluster, or if the weights of a seed are all 0.
    """
    values = require_answers(values)
    if weights is not None:
        totals = np.asarray(weights, dtype=float).mean(axis=1, keepdims=True)
        if not (totals > 0).all():
            return math.nan, math.nan
        ratios = values.mean(axis=1, keepdims=True) / totals
        values = ratios + (values - ratios * weights) / totals
    values = by_cluster(values, clusters)
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


def accuracy_interval(correct: np.ndarray, clusters: np.ndarray | None = None) -> tuple[float, float]:
    """Return the t interval of an accuracy, from (n_seeds, n_questions) shares of right answers.

    Two right and two wrong questions (clusters) are added, as by Agresti and Coull (1998) for one proportion. The
    variance is `crossed_variance`. docs/simulations.md has the coverage.

    Args:
        clusters: cluster of each question (`by_cluster`).
    """
    correct = by_cluster(np.asarray(correct, dtype=float), clusters)
    n_seeds, n_questions = correct.shape
    by_question = correct.mean(axis=0)
    total = n_questions + 4
    most_degrees = n_questions + 3
    middle = (float(by_question.sum()) + 2) / total
    questions = ((float(by_question @ by_question) + 2) / total - middle**2) / total
    reach = float(scipy.special.stdtrit(most_degrees, UPPER)) * math.sqrt(questions)
    if n_seeds > 1 and n_questions > 1:
        variance, degrees = crossed_variance(correct)
        added = max(questions - float(by_question.var(ddof=1)) / n_questions, 0.0)
        quantile = float(scipy.special.stdtrit(min(degrees, most_degrees), UPPER))
        reach = quantile * math.sqrt(variance + added)
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

    If Holm's procedure rejects, an interval that contains 0 ends there, so 0 is inside exactly if the corrected p is
    above `LEVEL`. Strassburger and Bretz (2008) give up all other bounds for that. Here Bonferroni's are kept, so
    bounds and signs together can be wrong in more than 5 % of families (up to 6 % in simulations with one true null).
    """
    members: list[tuple[float, float, float]] = []
    for p, ends, effect in zip(holm(p_values), intervals, effects, strict=True):
        low, high = ends
        if p <= LEVEL and effect > 0:
            low = max(low, 0.0)
        elif p <= LEVEL:
            high = min(high, 0.0)
        members.append((float(p), low, high))
    return members


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's step-down adjustment of p-values, in their order (Holm 1979, section 3)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]))
    return adjusted
