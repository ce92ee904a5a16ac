"""Whether policies that were trained online are closer to M0 than others of the same gain.

Over the policies, the logarithm of the mean divergence is regressed on gain and on whether they were trained online.
The coefficient's variance is that of its linearisation in divergences and in gains, each over crossed random seeds and
problems (`crossed_variance`); what both have in common is left out. docs/analysis.md says what that leaves open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from g2d.analysis.statistics import UPPER, crossed_variance

FEWEST = 2  # policies of either kind


@dataclass(frozen=True, slots=True)
class EqualGain:
    """The divergence of online policies over that of the others at the same gain."""

    status: Literal["compared", "too few policies", "no common gain"]
    ratio: float = math.nan
    ratio_low: float = math.nan  # 95 % interval
    ratio_high: float = math.nan
    p_value: float = math.nan  # two-sided, of a ratio of 1


def at_equal_gain(divergence: np.ndarray, change: np.ndarray, online: np.ndarray) -> EqualGain:
    """Compare policies whose gains overlap.

    Args:
        divergence: (policies, seeds, problems), at least two problems; the means of policies are positive.
        change: (policies, seeds, problems), accuracy less that of M0; not necessarily of the same problems.
    """
    if min(online.sum(), (~online).sum()) < FEWEST:
        return EqualGain("too few policies")
    gain, means = (values.mean(axis=(1, 2)) for values in (change, divergence))
    kinds = gain[online], gain[~online]
    if max(own.min() for own in kinds) > min(own.max() for own in kinds):
        return EqualGain("no common gain")
    design = np.column_stack([np.ones_like(gain), gain, online])
    inverse, log = np.linalg.pinv(design.T @ design), np.log(means)
    coefficients = inverse @ design.T @ log
    log_ratio, weights = float(coefficients[2]), (inverse @ design.T)[2]
    # The derivatives of the coefficient by log divergences and by gains.
    of_gain = inverse[2, 1] * (log - design @ coefficients) - coefficients[1] * weights
    parts = [_variance(np.tensordot(weights / means, divergence, axes=1))]
    parts += [_variance(np.tensordot(of_gain, change, axes=1))]
    variance = sum(own for own, _ in parts)
    # Satterthwaite (1946, eq. 17).
    degrees = variance**2 / sum(own**2 / n for own, n in parts) if variance else 1.0
    reach = float(scipy.stats.t.ppf(UPPER, degrees)) * math.sqrt(variance)
    p = 2 * float(scipy.stats.t.sf(abs(log_ratio) / math.sqrt(variance), degrees)) if variance else float(not log_ratio)
    ratio, low, high = (math.exp(log_ratio + x) for x in (0.0, -reach, reach))
    return EqualGain("compared", ratio, low, high, p)


def _variance(values: np.ndarray) -> tuple[float, float]:
    """Variance of the mean of (seeds, problems), and its degrees of freedom; given the weights with one seed."""
    if len(values) > 1:
        return crossed_variance(values)
    return float(values.var(ddof=1)) / values.shape[1], values.shape[1] - 1.0
