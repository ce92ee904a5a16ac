"""Variance components of a difference between two policies: questions, seeds, and single answers.

What a question or a seed adds to all policies cancels in a paired difference; the interactions are estimated by the
three-way analysis of variance without replication (Searle, Casella and McCulloch 1992, section 4.3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of one answer in 0..1."""

    policy_question: float  # interaction of policy and question
    policy_seed: float  # interaction of policy and seed; NaN with one seed
    answer: float  # residual of single answers; 0 with one seed, where it is part of policy_question

    @property
    def seed_sd(self) -> float:
        """Standard deviation of a policy's accuracy over seeds, without the noise of single answers."""
        return math.sqrt(self.policy_seed)

    def of_difference(self, n_seeds: int, n_questions: int) -> tuple[float, float, float]:
        """Variances of the difference between two mean accuracies from questions, seeds and single answers."""
        seeds = 0.0 if math.isnan(self.policy_seed) else self.policy_seed
        return (
            2 * self.policy_question / n_questions,
            2 * seeds / n_seeds,
            2 * self.answer / (n_seeds * n_questions),
        )


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The variance components of policies that were trained in the same way."""

    components: Components
    seed_sd_low: float  # 95 % interval of `seed_sd`; NaN with one seed
    seed_sd_high: float
    cancelled: float  # share of an accuracy's variance over questions that pairing by question removes


def decompose(answers: np.ndarray) -> Decomposition:
    """The variance components of policies that answered the same questions with the same seeds.

    Negative estimates are set to zero. The interval of the seeds' standard deviation inverts the chi-square
    distribution of their mean square, the noise of single answers taken as known.

    Args:
        answers: (n_policies, n_seeds, n_questions), shares of right answers in 0..1; at least two policies and
            questions.
    """
    n_policies, n_seeds, n_questions = answers.shape
    left = answers - answers.mean(axis=0)
    left -= left.mean(axis=(1, 2), keepdims=True)
    by_question, by_seed = left.mean(axis=1), left.mean(axis=2)
    question_square = n_seeds * float((by_question**2).sum()) / ((n_policies - 1) * (n_questions - 1))
    of_accuracy = float(answers.mean(axis=1).var(axis=1, ddof=1).mean())
    cancelled = 1 - question_square / n_seeds / of_accuracy if of_accuracy else math.nan
    if n_seeds == 1:
        return Decomposition(Components(question_square, math.nan, 0.0), math.nan, math.nan, cancelled)
    rest = left - by_question[:, None] - by_seed[..., None]
    degrees = (n_policies - 1) * (n_seeds - 1)
    seed_square = n_questions * float((by_seed**2).sum()) / degrees
    answer = float((rest**2).sum()) / (degrees * (n_questions - 1))

    def seed_variance(square: float) -> float:
        return max(square - answer, 0.0) / n_questions

    low, high = (seed_square * degrees / float(scipy.special.chdtri(degrees, tail)) for tail in (0.025, 0.975))
    question = max(question_square - answer, 0.0) / n_seeds
    components = Components(question, seed_variance(seed_square), answer)
    return Decomposition(components, math.sqrt(seed_variance(low)), math.sqrt(seed_variance(high)), cancelled)
