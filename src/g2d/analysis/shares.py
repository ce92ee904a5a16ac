"""How much of a gain does a control also get? The share of the truth's gain over M0, with an interval.

    share = (control - M0) / (truth - M0)

The interval holds the shares r that the paired test does not reject, that is for which control - r truth - (1 - r) M0
may be 0 (Fieller 1954, "Some problems in interval estimation"). The test is that of `comparisons`, so at level alpha
the interval holds 0 exactly where the control does not differ significantly from M0, and 1 exactly where it does not
from the truth. In a family Holm's tests find more than that; `Share.compatible` follows them.

Of the variance between seeds, M0 has none, and what seeds do to both policies alike cancels at r = 1. With sigma^2 of a
policy alone and tau^2 what is left where two are paired, the combination has

    (1 - r)^2 sigma^2 + 2 r tau^2,

each taken from the pool as `crossed` does it; a negative r counts as 0 in the second term, which errs on the safe side.
Where there is no pool, the combination's own variance over seeds is used, as for a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from g2d.analysis.comparisons import LEVEL, Comparison
from g2d.analysis.crossed import ENOUGH_SEEDS, Error, centre, error_of_difference
from g2d.analysis.statistics import one_side

FARTHEST = 2.0**10  # no interval ends beyond this share


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a gain."""

    share: float | None  # None, as both ends, where there is no gain to have a share of
    low: float | None  # None too where the interval has no end on this side
    high: float | None

    def compatible(self, gain: Comparison, true_gain: Comparison, difference: Comparison) -> Share:
        """This share, in a family of controls that Holm's tests are made of (`comparisons.corrected`).

        Where the truth's gain is not significant there is no share. Where the control's gain is, the interval ends at
        0 at the latest, and where truth and control differ significantly, at 1.

        Args:
            gain: control less M0.
            true_gain: truth less M0.
            difference: truth less control.
        """
        if true_gain.p_holm > LEVEL:
            return Share(None, None, None)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if gain.p_holm <= LEVEL:
            low, high = one_side(low, high, gain.difference * true_gain.difference > 0)
        if difference.p_holm <= LEVEL:
            ahead = not difference.difference * true_gain.difference > 0
            low, high = one_side(low, high, ahead, of=1.0)
        return Share(self.share, low if math.isfinite(low) else None, high if math.isfinite(high) else None)


def share_of_gain(
    control: np.ndarray, truth: np.ndarray, base: np.ndarray, pool: np.ndarray | None = None, alpha: float = LEVEL
) -> Share:
    """The share of the truth's gain that a control gets.

    Args:
        control: (n_seeds, n_problems), the share of a problem's samples that are correct.
        truth: the same.
        base: (1, n_problems), M0's.
        pool: (n_policies, n_seeds), accuracies of the policies that were trained alike, the two among them.
        alpha: the interval holds the share with probability 1 - alpha.

    Returns:
        The share and its interval, which has no ends where the truth's gain is not significant at alpha: then no share
        is excluded. Without any gain at all there is no share.
    """
    gain = float((truth - base).mean())
    if gain == 0:
        return Share(None, None, None)
    estimate = float((control - base).mean()) / gain
    if abs(centre(truth - base)) <= error_of_difference(truth - base, pool, False).reach(alpha):
        return Share(estimate, None, None)

    def excess(r: float) -> float:
        """How far the combination is from 0, beyond what chance reaches."""
        values = control - r * truth - (1 - r) * base
        return abs(centre(values)) - _error(values, r, pool).reach(alpha)

    return Share(estimate, *(_end(excess, estimate, side) for side in (-1, 1)))


def _error(values: np.ndarray, r: float, pool: np.ndarray | None) -> Error:
    alone = error_of_difference(values, pool, False)
    if len(values) == 1 or len(values) >= ENOUGH_SEEDS or pool is None:
        return alone  # nothing is learnt from other policies: these values' own variance is that of the combination
    both = error_of_difference(values, pool, True)
    of_one, of_two = (1 - r) ** 2, max(r, 0.0)
    seeds = max(of_one * alone.seeds + of_two * both.seeds, _own(values))
    return replace(alone if of_one > of_two else both, seeds=seeds)


def _own(values: np.ndarray) -> float:
    """Variance of the mean as these seeds alone show it."""
    return float(values.mean(axis=1).var(ddof=1)) / len(values)


def _end(excess: Callable[[float], float], estimate: float, side: int) -> float | None:
    """The nearest share on one side that the test rejects."""
    accepted, step = estimate, 0.01
    while excess(estimate + side * step) <= 0:
        accepted, step = estimate + side * step, 2 * step
        if step > FARTHEST:
            return None
    return float(scipy.optimize.brentq(excess, accepted, estimate + side * step))
