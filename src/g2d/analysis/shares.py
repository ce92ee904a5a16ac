"""The share of correctness's gain over M0 that a control gets, with an interval.

    share = (control - M0) / (truth - M0)

The interval contains the shares r for which the paired test of `comparisons` does not reject a mean of 0 of control - r
truth - (1 - r) M0 (Fieller 1954, "Some problems in interval estimation"). The variance between seeds is

    (1 - r)^2 sigma^2 + 2 r tau^2,

sigma^2 is the variance of one policy, tau^2 of a pair, from the pool as in `crossed`; a negative r counts as 0 in the
second term. Without a pool it is the combination's variance over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from g2d.analysis.comparisons import LEVEL, Comparison
from g2d.analysis.crossed import ENOUGH_SEEDS, Error, SeedPool, error_of_difference, mean_squares
from g2d.analysis.statistics import one_side

FARTHEST = 2.0**10  # no interval ends beyond this share


@dataclass(frozen=True, slots=True)
class Share:
    share: float | None  # None, with both ends, if there is no gain
    low: float | None  # None too if the interval has no end on this side
    high: float | None

    def compatible(self, gain: Comparison, true_gain: Comparison, difference: Comparison) -> Share:
        """Return this share with an interval that agrees with the tests of `comparisons.corrected`.

        It ends at 0 if the control's gain is significant, and at 1 if the difference (truth minus control) is. Without
        a significant gain of the truth over M0 there is no share.
        """
        if true_gain.p_holm > LEVEL:
            return Share(None, None, None)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if gain.p_holm <= LEVEL:
            low, high = one_side(low, high, gain.difference * true_gain.difference > 0)
        if difference.p_holm <= LEVEL:
            above_1 = not difference.difference * true_gain.difference > 0
            low, high = one_side(low, high, above_1, of=1.0)
        return Share(self.share, low if math.isfinite(low) else None, high if math.isfinite(high) else None)


def share_of_gain(
    control: np.ndarray,
    truth: np.ndarray,
    base: np.ndarray,
    pool: SeedPool | None = None,
    alpha: float = LEVEL,
    clusters: np.ndarray | None = None,
) -> Share:
    """Return the share of the truth's gain over M0 that a control gets, with its interval of level 1 - alpha. The
    interval has no ends if the truth's gain is not significant.

    Args:
        control, truth: (n_seeds, n_problems) shares of correct samples.
        base: shares of M0, (1, n_problems).
        pool: as for `crossed.error_of_difference`.
        clusters: cluster of each problem.
    """
    gain = float((truth - base).mean())
    if gain == 0:
        return Share(None, None, None)
    estimate = float((control - base).mean()) / gain
    of_truth = error_of_difference(truth - base, pool, clusters=clusters)
    if abs(of_truth.middle) <= of_truth.reach(alpha):
        return Share(estimate, None, None)

    def excess(r: float) -> float:
        error = _error(control - r * truth - (1 - r) * base, r, pool, clusters)
        return abs(error.middle) - error.reach(alpha)

    return Share(estimate, *(_end(excess, estimate, side) for side in (-1, 1)))


def _error(values: np.ndarray, r: float, pool: SeedPool | None, clusters: np.ndarray | None) -> Error:
    alone = error_of_difference(values, pool, clusters=clusters)
    if len(values) == 1 or len(values) >= ENOUGH_SEEDS or pool is None:
        return alone
    both = error_of_difference(values, pool, True, clusters)
    of_one, of_two = (1 - r) ** 2, max(r, 0.0)
    seeds = max(of_one * alone.seeds + of_two * both.seeds, mean_squares(values)[0])
    return replace(alone if of_one > of_two else both, seeds=seeds)


def _end(excess: Callable[[float], float], estimate: float, side: int) -> float | None:
    """Return the nearest share on one side that the test rejects; None if it rejects none."""
    accepted, step = estimate, 0.01
    while excess(estimate + side * step) <= 0:
        accepted, step = estimate + side * step, 2 * step
        if step > FARTHEST:
            return None
    return float(scipy.optimize.brentq(excess, accepted, estimate + side * step))
