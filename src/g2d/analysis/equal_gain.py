"""Whether policies that were trained online are closer to M0 than others of the same gain.

Over the policies, the logarithm of the mean divergence is regressed on gain and on whether they were trained online.
The coefficient is a contrast of these policies, which are taken as given: it does not speak for other ones. Its
variance is that of its linearisation over crossed random seeds and problems (`crossed_variance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from g2d.analysis.statistics import crossed_variance

FEWEST = 2  # policies of either kind


@dataclass(frozen=True, slots=True)
class EqualGain:
    """The divergence of online policies over that of the others at the same gain."""

    status: Literal["compared", "too few policies", "no common gain"]
    ratio: float = math.nan
    ratio_low: float = math.nan  # 95 % interval
    ratio_high: float = math.nan
    p_value: float = math.nan  # two-sided, of a ratio of 1


def at_equal_gain(divergence: np.ndarray, gain: np.ndarray, online: np.ndarray, level: float = 0.95) -> EqualGain:
    """Compare policies whose gains overlap.

    Args:
        divergence: (policies, seeds, problems), at least two problems; the means of policies are positive.
        gain: (policies,), accuracy less that of M0.
        online: (policies,), whether they were trained online.
        level: of the interval.
    """
    kinds = gain[online], gain[~online]
    if min(map(len, kinds)) < FEWEST:
        return EqualGain("too few policies")
    if max(own.min() for own in kinds) > min(own.max() for own in kinds):
        return EqualGain("no common gain")
    weights = np.linalg.pinv(np.column_stack([np.ones_like(gain), gain, online]))[2]
    means = divergence.mean(axis=(1, 2))
    log_ratio = float(weights @ np.log(means))
    values = np.tensordot(weights / means, divergence, axes=1)  # (seeds, problems), linearised but for a constant
    n_seeds, n_problems = values.shape
    if n_seeds == 1:
        variance, degrees = float(values.var(ddof=1)) / n_problems, float(n_problems - 1)
    else:
        variance, degrees = crossed_variance(values)
    error = math.sqrt(variance)
    reach = float(scipy.stats.t.ppf((1 + level) / 2, degrees)) * error
    p = 2 * float(scipy.stats.t.sf(abs(log_ratio) / error, degrees)) if error else float(log_ratio == 0)
    ratio, low, high = (math.exp(log_ratio + x) for x in (0.0, -reach, reach))
    return EqualGain("compared", ratio, low, high, p)
