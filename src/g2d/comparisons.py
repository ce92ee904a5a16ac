"""Two policies on the same questions: is one better, by how much, and how small a difference could have been seen?

The answers are paired by question, and by seed where both policies have seeds, so what questions and seeds have in
common cancels. Seeds share their questions: McNemar's test on the pooled answers counts a question once for every seed
and rejects far too often, which tests/analysis/test_comparisons.py shows. Two tests are offered instead, which answer
two questions: would other seeds and other questions agree (`p_value`), and, with these very policies, would other
questions (`p_questions`)?
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from g2d.statistics import calibrated, percentile_interval, resample

POWER = 0.8
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy against a reference. Differences of accuracy lie in -1..1; positive favours the policy."""

    n_seeds: int
    n_problems: int
    difference: float
    ci_low: float  # 95 %, seeds and questions resampled together for both policies
    ci_high: float
    standard_error: float  # of the difference, over the same resamples
    p_value: float  # two-sided: difference / standard_error against the normal distribution
    p_questions: float  # two-sided and exact, these seeds given; McNemar's exact test where there is one
    gained: float  # share of answers that the policy has right and the reference wrong
    lost: float  # the reverse; difference = gained - lost
    cohens_h: float  # effect size (Cohen 1988, eq. 6.2.1); 0.2 is called small, 0.5 medium
    # Difference found with 80 % power at the 5 % level, one comparison alone. NaN where all resamples agree: then
    # nothing is known of their spread, and 0 would claim that the smallest difference is found.
    minimum_detectable: float


def compare(policy: np.ndarray, reference: np.ndarray, samples: int = 1) -> Comparison:
    """Compare the answers of two policies.

    Args:
        policy: (n_seeds, n_problems), the share of a problem's samples that are correct.
        reference: the same problems in the same order; the same seeds, or one row for a policy without seeds (M0).
        samples: answers per seed and problem; 1 for greedy decoding.

    Raises:
        ValueError: the shapes do not belong together.
    """
    policy, reference = np.asarray(policy, dtype=float), np.asarray(reference, dtype=float)
    if policy.ndim != 2 or reference.shape not in (policy.shape, (1, policy.shape[-1])):
        raise ValueError(f"answers of shape {policy.shape} cannot be paired with {reference.shape}")
    deltas = policy - reference
    difference = float(deltas.mean())
    resampled = calibrated(resample(deltas), deltas)
    error = float(resampled.std(ddof=1))
    low, high = percentile_interval(resampled)
    return Comparison(
        n_seeds=policy.shape[0],
        n_problems=policy.shape[1],
        difference=difference,
        ci_low=low,
        ci_high=high,
        standard_error=error,
        p_value=float(2 * scipy.stats.norm.sf(abs(difference) / error)) if error > 0 else float(difference == 0),
        p_questions=sign_flip_p(np.rint(deltas.sum(axis=0) * samples).astype(int)),
        gained=float(deltas.clip(min=0).mean()),
        lost=float((-deltas).clip(min=0).mean()),
        cohens_h=cohens_h(float(policy.mean()), float(reference.mean())),
        minimum_detectable=minimum_detectable(error) if error > 0 else math.nan,
    )


def sign_flip_p(differences: np.ndarray) -> float:
    """Exact two-sided p-value of a paired permutation test with questions as the units (Fisher 1935, section 21).

    If the policies were exchangeable, each question's difference, all seeds and samples together, could as well have
    the other sign. All 2^n sign patterns are counted, by convolution. With differences of -1, 0 and 1, that is one
    answer per question, this is McNemar's exact test.

    Args:
        differences: (n_questions,) whole numbers: correct answers of the policy minus those of the reference.
    """
    magnitudes = np.abs(differences[differences != 0])
    total = int(magnitudes.sum())
    chance = np.zeros(2 * total + 1)  # of every sum from -total to total
    chance[total] = 1
    for m in magnitudes:
        shifted = np.zeros_like(chance)
        shifted[m:] += chance[:-m] / 2
        shifted[:-m] += chance[m:] / 2
        chance = shifted
    sums = np.arange(-total, total + 1)
    return float(min(1.0, chance[np.abs(sums) >= abs(int(differences.sum()))].sum()))


def cohens_h(p: float, q: float) -> float:
    """Effect size of two proportions, h = 2 asin sqrt(p) - 2 asin sqrt(q) (Cohen 1988, eq. 6.2.1)."""
    return float(2 * np.arcsin(np.sqrt(p)) - 2 * np.arcsin(np.sqrt(q)))


def minimum_detectable(standard_error: float, level: float = LEVEL, power: float = POWER) -> float:
    """Smallest true difference that a two-sided test finds with the given power: (z_{1-level/2} + z_power) SE, which is
    2.8 SE at 5 % and 80 % (Bloom 1995, table 1)."""
    return float((scipy.stats.norm.ppf(1 - level / 2) + scipy.stats.norm.ppf(power)) * standard_error)
