"""Comparisons of policies on the same questions, and on the same seeds if they have seeds: tests and margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from g2d.analysis.statistics import LEVEL, error_of_difference, simultaneous


@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy against a reference. Differences of accuracies, -1..1, are positive if the policy is better."""

    n_seeds: int
    n_problems: int
    n_clusters: int  # n_problems if the problems are independent
    difference: float
    ci_low: float  # 95 % over seeds and questions, for all comparisons of the family together
    ci_high: float
    p_value: float  # two-sided: other seeds and questions; Holm's for the family from `corrected`
    standard_error: float  # error of the difference over seeds and questions
    seed_share: float  # share of its square from seeds; the rest of both shares is the noise of single answers
    problem_share: float  # from problems
    gained: float  # mean of the positive differences of a question; with one sample, answers only the policy has right
    lost: float  # of the negative ones; difference = gained - lost


def compare(
    policy: np.ndarray, reference: np.ndarray, family: int = 1, clusters: np.ndarray | None = None
) -> Comparison:
    """Compare the answers of two policies, paired by question and seed (`error_of_difference`).

    Args:
        policy: (n_seeds, n_problems) shares of correct samples.
        reference: the same problems and seeds, or one row for a policy without seeds (M0).
        family: number of comparisons of which one may be chosen afterwards.
        clusters: cluster of each problem, if they are not independent.

    Raises:
        ValueError: the shapes do not belong together.
    """
    policy = np.asarray(policy, dtype=float)
    reference = np.asarray(reference, dtype=float)
    if policy.ndim != 2 or reference.shape not in (policy.shape, (1, policy.shape[-1])):
        raise ValueError(f"answers of shape {policy.shape} cannot be paired with {reference.shape}")
    deltas = policy - reference
    error = error_of_difference(deltas, clusters)
    low, high = error.interval(LEVEL / family)
    return Comparison(
        n_seeds=policy.shape[0],
        n_problems=policy.shape[1],
        n_clusters=policy.shape[1] if clusters is None else len(np.unique(clusters)),
        difference=float(deltas.mean()),
        ci_low=low,
        ci_high=high,
        p_value=error.p_value(),
        standard_error=error.standard_error,
        seed_share=max(error.seeds - error.noise, 0.0) / error.standard_error**2,
        problem_share=error.questions / error.standard_error**2,
        gained=float(deltas.clip(min=0).mean()),
        lost=float((-deltas).clip(min=0).mean()),
    )


def corrected(family: Sequence[Comparison], missing: int = 0) -> list[Comparison]:
    """Return a family of `compare` with Holm's p-values and simultaneous intervals that agree with them.

    Args:
        missing: number of further members that could not be compared; they count as p-values of 1.
    """
    adjusted = simultaneous(
        [comparison.p_value for comparison in family] + [1.0] * missing,
        [(comparison.ci_low, comparison.ci_high) for comparison in family] + [(-1.0, 1.0)] * missing,
        [comparison.difference for comparison in family] + [0.0] * missing,
    )
    return [
        replace(comparison, p_value=p, ci_low=low, ci_high=high)
        for comparison, (p, low, high) in zip(family, adjusted[: len(family)], strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Margin:
    """Margin of a policy against the best other policy, in accuracy, -1..1."""

    behind: float  # accuracy of the best other policy minus its own
    at_least: float  # lower bound of `behind`, one-sided 95 %; 0 if the policy may be the best
    at_most: float  # upper bound, one-sided 95 % for all policies together; 0 if the policy is shown to be the best


def margins_behind_best(answers: Sequence[np.ndarray], clusters: np.ndarray | None = None) -> list[Margin]:
    """Return by how much each policy is at least and at most worse than the best (Hsu 1984, "Constrained simultaneous
    confidence intervals for multiple comparisons with the best").

    The bounds are the largest ends of one-sided intervals of another policy's accuracy less its own, or 0. Only the
    n - 1 bounds against the truly best policy have to hold, each at level 5 % / (n - 1): then all `at_most` hold, and
    the best policy is among those with an `at_least` of 0.

    Args:
        answers: (n_seeds, n_problems) shares of right answers of each policy, with the same seeds and problems.
        clusters: cluster of each problem, if they are not independent.
    """
    n = len(answers)
    margins = []
    for i, own in enumerate(answers):
        leads = [other - own for j, other in enumerate(answers) if j != i]
        # One-sided at 5 % / (n - 1) is two-sided at twice that.
        ends = [error_of_difference(lead, clusters).interval(2 * LEVEL / (n - 1)) for lead in leads]
        behind = max((float(lead.mean()) for lead in leads), default=0.0)
        at_least = max([0.0, *(low for low, _ in ends)])
        at_most = max([0.0, *(high for _, high in ends)])
        margins.append(Margin(behind, at_least, at_most))
    return margins
