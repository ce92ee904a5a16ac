"""Divergence at equal gain: are online policies closer to M0 than other policies of the same gain?

The logarithm of the mean divergence is regressed on gain and online training by least squares, with policies as the
unit, because they differ by more than seeds and problems explain. The interval is Student's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from g2d.analysis.statistics import UPPER

FEWEST = 2  # policies of either kind
FEWEST_FOR_A_TEST = 6  # policies in all: three coefficients leave three degrees of freedom


@dataclass(frozen=True, slots=True)
class EqualGain:
    status: Literal["compared", "not tested", "too few policies", "no common gain"]
    ratio: float = math.nan  # divergence of online policies over that of the others
    ratio_low: float = math.nan  # 95 % interval over policies; NaN if not tested
    ratio_high: float = math.nan
    p_value: float = math.nan  # two-sided, of a ratio of 1


def at_equal_gain(divergence: np.ndarray, gain: np.ndarray, online: np.ndarray) -> EqualGain:
    """Compare the mean divergence from M0 (positive) of online and other policies at equal gain over M0; arrays are
    (n_policies,).

    With fewer than `FEWEST_FOR_A_TEST` policies there is only a ratio ("not tested").
    """
    if min(online.sum(), (~online).sum()) < FEWEST:
        return EqualGain("too few policies")
    kinds = gain[online], gain[~online]
    if max(gains.min() for gains in kinds) > min(gains.max() for gains in kinds):
        return EqualGain("no common gain")
    design, log = np.column_stack([np.ones_like(gain), gain, online]), np.log(divergence)
    inverse = np.linalg.pinv(design.T @ design)
    coefficients = inverse @ design.T @ log
    ratio, degrees = float(coefficients[2]), len(log) - 3
    if len(log) < FEWEST_FOR_A_TEST:
        return EqualGain("not tested", math.exp(ratio))
    error = math.sqrt(float(((log - design @ coefficients) ** 2).sum()) / degrees * float(inverse[2, 2]))
    reach = float(scipy.special.stdtrit(degrees, UPPER)) * error
    p = 2 * float(scipy.special.stdtr(degrees, -abs(ratio) / error)) if error else float(not ratio)
    return EqualGain("compared", math.exp(ratio), math.exp(ratio - reach), math.exp(ratio + reach), p)
