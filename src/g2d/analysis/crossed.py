"""Intervals and tests of a mean over crossed seeds and questions.

The half width at level alpha of the mean d of a (seeds, questions) array is

    h(alpha)^2 = t_q(alpha)^2 Q + t_s(alpha)^2 S

Q is the variance from questions beyond the noise of single answers, S the variance from seeds including that noise.
Each quantile has the degrees of freedom of its variance (Zou and Donner 2008, "Construction of confidence limits about
effect measures", eq. 3). The p-value of d is the alpha at which h(alpha) = |d|, so test and interval agree.
docs/simulations.md has error rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

SMALLEST_P = 1e-100


@dataclass(frozen=True, slots=True)
class Error:
    """A mean, its variance components, and the degrees of freedom of their estimates."""

    middle: float  # the mean, in -1..1
    questions: float  # variance from questions; with several seeds, beyond the noise of single answers
    question_degrees: int
    seeds: float = 0.0  # variance from seeds, including the noise of single answers; 0 with one seed
    seed_degrees: int = 1
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


def error_of_difference(values: np.ndarray) -> Error:
    """Return the mean difference between two policies with its error.

    One question gained and one lost are added (Bonett and Price 2012, "Adjusted Wald confidence interval for a
    difference of binomial proportions based on paired data").

    Args:
        values: (n_seeds, n_questions) differences of shares of right answers.
    """
    n_seeds, n_questions = values.shape
    by_question = values.mean(axis=0)
    total = n_questions + 2
    degrees = n_questions + 1
    middle = float(values.mean()) * n_questions / total
    questions = ((float(by_question @ by_question) + 2) / total - middle**2) / total
    if n_seeds == 1:
        return Error(middle, questions, degrees)
    seeds, _, noise = mean_squares(values)
    return Error(middle, max(questions - noise, 0.0), degrees, seeds, min(n_seeds - 1, degrees), noise)
