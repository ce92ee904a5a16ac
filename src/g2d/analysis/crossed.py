"""Intervals and tests of a mean over crossed seeds and questions.

The half width at level alpha of the mean d of a (seeds, questions) array is

    h(alpha)^2 = t_q(alpha)^2 Q + t_s(alpha)^2 S

Q is the variance from questions beyond the noise of single answers, S the variance from seeds including that noise.
Each quantile has the degrees of freedom of its variance (Zou and Donner 2008, "Construction of confidence limits about
effect measures", eq. 3). The p-value of d is the alpha at which h(alpha) = |d|, so test and interval agree.
docs/simulations.md simulates the pooling of S between few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

ENOUGH_SEEDS = 8  # t on the pair's seeds then has the power of the inflated pool (`coverage.py pooling`)
INFLATION = 2.0  # factor of the pooled variance beyond noise; n / 4 in a pool of n > 8 policies
# A policy outside the pool counts with its own variance from this share of the pooled one, by number of seeds.
OWN_FROM = {2: 0.25}  # two seeds often agree by chance
OWN_FROM_MORE_SEEDS = 0.75
UNSTABLE = 0.05  # level of the test by which a policy is left out of the pool, over all policies
SMALLEST_P = 1e-100


def possible(low: float, high: float) -> tuple[float, float]:
    return max(low, -1.0), min(high, 1.0)


@dataclass(frozen=True, slots=True)
class Error:
    """A mean, its variance components, and the degrees of freedom of their estimates."""

    questions: float  # variance from questions; with several seeds, beyond the noise of single answers
    question_degrees: int
    seeds: float = 0.0  # variance from seeds, including the noise of single answers; 0 with one seed
    seed_degrees: int = 1
    noise: float = 0.0  # variance from single answers
    expected_seeds: float = 0.0  # `seeds` without inflation, for the power of the test
    middle: float = 0.0  # the mean, in -1..1

    @property
    def standard_error(self) -> float:
        """Estimate of the standard deviation of the mean over repeated experiments."""
        return math.sqrt(self.questions + self.expected_seeds)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of `standard_error` (Satterthwaite 1946, eq. 17)."""
        parts = ((self.questions, self.question_degrees), (self.expected_seeds, self.seed_degrees))
        uncertainty = math.fsum(variance**2 / degrees for variance, degrees in parts)
        return self.standard_error**4 / uncertainty if uncertainty else float(self.question_degrees)

    def reach(self, alpha: float) -> float:
        """Return the half width of the interval of level 1 - alpha."""
        q, s = (-float(scipy.special.stdtrit(f, alpha / 2)) for f in (self.question_degrees, self.seed_degrees))
        # Seeds that agree by chance must not make the interval narrower than an interval over questions.
        return math.hypot(q * math.sqrt(self.questions), max(s * math.sqrt(self.seeds), q * math.sqrt(self.noise)))

    def interval(self, alpha: float) -> tuple[float, float]:
        reach = self.reach(alpha)
        return possible(self.middle - reach, self.middle + reach)

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p-value of the mean `null`: the alpha whose `reach` is their distance."""
        distance = abs(self.middle - null)
        ratio = distance / math.sqrt(self.questions + max(self.seeds, self.noise))
        degrees = [self.question_degrees, self.seed_degrees if self.seeds else self.question_degrees]
        # p is between the values with all variance at the larger and at the smaller degrees of freedom.
        low, high = (max(2 * float(scipy.special.stdtr(f, -ratio)), SMALLEST_P) for f in (max(degrees), min(degrees)))
        if math.isclose(low, high, rel_tol=1e-12) or self.reach(low) <= distance:
            return low
        first, last = math.log(low) - 1e-9, min(math.log(high) + 1e-9, 0.0)  # beyond 1 the reach grows again
        if self.reach(math.exp(last)) > distance:  # near p = 1 `stdtr` is not accurate enough
            last = 0.0
        between = scipy.optimize.brentq(lambda x: self.reach(math.exp(x)) - distance, first, last, rtol=1e-14)
        return min(1.0, math.exp(between))

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value that the mean is above a bound."""
        half = self.p_value(bound) / 2
        return half if self.middle > bound else 1 - half


def mean_squares(values: np.ndarray) -> tuple[float, float, float]:
    """Return variances of the mean of (n_seeds, n_questions) values from seeds, questions and noise of single answers.

    They are mean squares over the number of values, for at least two seeds (two-way analysis of variance without
    replication; Searle, Casella and McCulloch 1992, section 4.3).
    """
    n_seeds, n_questions = values.shape
    seeds, questions = values.mean(axis=1), values.mean(axis=0)
    rest = values - seeds[:, None] - questions + values.mean()
    degrees = (n_seeds - 1) * max(n_questions - 1, 1)
    noise = float((rest**2).sum()) / degrees / values.size
    return float(seeds.var(ddof=1)) / n_seeds, float(questions.var(ddof=min(n_questions - 1, 1))) / n_questions, noise


def clustered(values: np.ndarray, clusters: np.ndarray | None) -> np.ndarray:
    """Return (n_seeds, n_clusters) values with the same means by seed: a seed's mean plus the sum of a cluster's
    deviations from it over the mean cluster size."""
    if clusters is None:
        return values
    means, codes = values.mean(axis=1, keepdims=True), np.unique(clusters, return_inverse=True)[1]
    if codes.max() == values.shape[1] - 1:  # one question each: exactly as without clusters, in spite of rounding
        return values
    sums = np.stack([np.bincount(codes, weights=deviations) for deviations in values - means])
    return np.asarray(means + sums * (sums.shape[1] / values.shape[1]))


def effective_questions(by_question: np.ndarray, clusters: np.ndarray | None) -> tuple[float, int]:
    """Return the number of independent questions whose mean would vary as much, and its degrees of freedom.

    The number is n over the design effect (Kish 1965), at most n; if no value differs, the number of clusters.
    """
    n = len(by_question)
    if clusters is None:
        return n, n - 1
    by_cluster = clustered(by_question[None], clusters)[0]
    of_questions, of_clusters = (float(values.var(ddof=1)) / len(values) for values in (by_question, by_cluster))
    effect = of_clusters / of_questions if of_questions else n / len(by_cluster)
    return n / max(effect, 1.0), len(by_cluster) - 1


class SeedPool(NamedTuple):
    """Accuracies of policies that were trained in the same way, over which the variance between few seeds is pooled."""

    accuracies: np.ndarray  # (n_policies, n_seeds)
    has_both: bool = True  # the two policies that are compared are among them

    @classmethod
    def without_unstable(cls, accuracies: np.ndarray, compared: Sequence[int]) -> SeedPool:
        """Return the pool of the `stable` policies among `accuracies`, (n_policies, n_seeds).

        `compared` has the indices of the two compared policies; one index if the other is M0.
        """
        inside = stable(accuracies)
        return cls(accuracies[inside], bool(inside[list(compared)].all()))


def stable(accuracies: np.ndarray) -> np.ndarray:
    """Return which of (n_policies, n_seeds) are pooled: all but the most variable policy, if an F test of it against
    the others is significant at `UNSTABLE` / n_policies (Shukla 1972, stability variance)."""
    n_policies, n_seeds = accuracies.shape
    inside = np.ones(n_policies, dtype=bool)
    if n_policies > 2 and 2 < n_seeds < ENOUGH_SEEDS:  # with two seeds, the others may agree by chance
        squares = (_residuals(accuracies) ** 2).sum(axis=1)
        of_one = float(squares.max()) * n_policies / (n_policies - 1)
        ratio = (n_policies - 2) * of_one / max(float(squares.sum()) - of_one, 1e-12)
        p = float(scipy.special.fdtrc(n_seeds - 1, (n_policies - 2) * (n_seeds - 1), ratio))
        inside[squares.argmax()] = p > UNSTABLE / n_policies
    return inside


def _residuals(accuracies: np.ndarray) -> np.ndarray:
    """Return interactions of policies and seeds."""
    by_policy, by_seed = accuracies.mean(axis=1, keepdims=True), accuracies.mean(axis=0)
    return np.asarray(accuracies - by_seed - by_policy + accuracies.mean())


def seed_variance(own: float, noise: float, pool: SeedPool, paired: bool) -> tuple[float, float, int]:
    """Return the variance of a mean difference from seeds and the noise of single answers, for the test and without
    inflation, and its degrees of freedom.

    A policy outside the pool may scatter more. It has its own variance and degrees of freedom unless its variance is
    clearly smaller (`OWN_FROM`): seeds that agree by chance must not get the pool's precision (`coverage.py entries`).

    Args:
        own, noise: `mean_squares` of these differences, over at least two seeds.
        paired: the reference has seeds too, and the differences are by seed.
    """
    n_policies, n_seeds = pool.accuracies.shape
    if n_seeds >= ENOUGH_SEEDS or n_policies < (2 if paired else 1) + pool.has_both:
        return own, max(own, noise), n_seeds - 1
    accuracies = pool.accuracies
    if paired:
        degrees = (n_policies - 1) * (n_seeds - 1)
        pooled = 2 * float((_residuals(accuracies) ** 2).sum()) / degrees / n_seeds
    else:
        degrees = n_policies * (n_seeds - 1)
        pooled = float(accuracies.var(axis=1, ddof=1).mean()) / n_seeds
    expected = max(pooled, noise)
    # A difference has two policies, so n/2 times the mean of n is as large as any two can be.
    most = n_policies / (2 if paired else 1) if pool.has_both else INFLATION
    inflation = min(max(INFLATION, n_policies / 4), most)
    variance = max(own, noise + inflation * (expected - noise))
    if not pool.has_both and own > OWN_FROM.get(n_seeds, OWN_FROM_MORE_SEEDS) * expected:
        return variance, max(own, noise), n_seeds - 1
    return variance, expected, degrees


def error_of_difference(
    values: np.ndarray, pool: SeedPool | None = None, paired: bool = False, clusters: np.ndarray | None = None
) -> Error:
    """Return the mean difference between two policies with its error.

    One question gained and one lost are added (Bonett and Price 2012, "Adjusted Wald confidence interval for a
    difference of binomial proportions based on paired data").

    Args:
        values: (n_seeds, n_questions) differences of shares of right answers.
        pool: policies that were trained alike, whose variance over seeds is pooled; None: only these two.
        paired: as for `seed_variance`.
        clusters: cluster of each question.
    """
    n_seeds, n_questions = values.shape
    by_question = values.mean(axis=0)
    n, question_degrees = effective_questions(by_question, clusters)
    if clusters is None:
        question_degrees += 2
    total, middle = n + 2, float(values.mean()) * n / (n + 2)
    questions = ((float(by_question @ by_question) * (n / n_questions) + 2) / total - middle**2) / total
    if n_seeds == 1:
        return Error(questions, question_degrees, middle=middle)
    if pool is None:
        pool, paired = SeedPool(values.mean(axis=1)[None]), False
    own, _, noise = mean_squares(clustered(values, clusters))
    seeds, expected, degrees = seed_variance(own, noise, pool, paired)
    questions, degrees = max(questions - noise, 0.0), min(degrees, question_degrees)
    return Error(questions, question_degrees, seeds, degrees, noise, expected, middle)
