"""Difference in accuracy of two policies, paired by question, and by seed if both have seeds: intervals and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from g2d.analysis.crossed import error_of_difference
from g2d.analysis.statistics import LEVEL, simultaneous


@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy against a reference. Differences of accuracies, -1..1, are positive if the policy is better."""

    n_seeds: int
    n_problems: int
    difference: float
    ci_low: float  # 95 %, over seeds and questions; contains 0 exactly if p_value > 0.05
    ci_high: float
    family_size: int  # comparisons of which one may be chosen afterwards
    family_low: float  # simultaneous for the family; agrees with p_holm after `corrected`
    family_high: float
    standard_error: float  # error of the difference over seeds and questions
    p_value: float  # two-sided: other seeds and questions
    p_holm: float  # Bonferroni's from `compare`, Holm's from `corrected`
    gained: float  # share of answers that the policy has right and the reference wrong
    lost: float  # the reverse; difference = gained - lost


def compare(policy: np.ndarray, reference: np.ndarray, family: int = 1) -> Comparison:
    """Compare the answers of two policies by the test of `g2d.analysis.crossed`.

    Args:
        policy: (n_seeds, n_problems) shares of correct samples.
        reference: the same problems and seeds, or one row for a policy without seeds (M0).
        family: number of comparisons of which one may be chosen afterwards.

    Raises:
        ValueError: the shapes do not belong together.
    """
    policy = np.asarray(policy, dtype=float)
    reference = np.asarray(reference, dtype=float)
    if policy.ndim != 2 or reference.shape not in (policy.shape, (1, policy.shape[-1])):
        raise ValueError(f"answers of shape {policy.shape} cannot be paired with {reference.shape}")
    deltas = policy - reference
    error = error_of_difference(deltas)
    low, high = error.interval(LEVEL)
    family_low, family_high = error.interval(LEVEL / family)
    p_value = error.p_value()
    return Comparison(
        n_seeds=policy.shape[0],
        n_problems=policy.shape[1],
        difference=float(deltas.mean()),
        ci_low=low,
        ci_high=high,
        family_size=family,
        family_low=family_low,
        family_high=family_high,
        standard_error=error.standard_error,
        p_value=p_value,
        p_holm=min(1.0, family * p_value),
        gained=float(deltas.clip(min=0).mean()),
        lost=float((-deltas).clip(min=0).mean()),
    )


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """Return a family with Holm's p-values and simultaneous intervals that agree with them."""
    adjusted = simultaneous(
        [comparison.p_value for comparison in family],
        [(comparison.family_low, comparison.family_high) for comparison in family],
        [comparison.difference for comparison in family],
    )
    return [
        replace(comparison, p_holm=p, family_low=low, family_high=high)
        for comparison, (p, low, high) in zip(family, adjusted, strict=True)
    ]
