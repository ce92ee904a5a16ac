"""Which policies are on the frontier of accuracy against cost and which are dominated, with tests on paired answers.

- *on the frontier*: better than each policy that is not shown to cost more. The largest of these p-values counts
  (intersection-union, Berger 1982, "Multiparameter hypothesis testing and acceptance sampling").
- *beaten*: worse than some policy that is shown to cost as much or less. The smallest of these p-values counts, times
  their number.
- *good enough*: less than a margin worse than any other policy, at any cost: `g2d.analysis.margins`, one-sided.

A policy costs less than another if the t interval of their difference over seeds says so; the intervals of all pairs on
an axis hold at once (Bonferroni). With one seed costs are taken as they are. The first two p-values are two-sided and
Holm-corrected over the policies, at half the level each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from g2d.analysis.margins import Differences, Margin, by_seed
from g2d.analysis.statistics import LEVEL, holm

ON, BEATEN, OPEN, CHEAPEST = "on the frontier", "beaten", "open", "nothing cheaper"


@dataclass(frozen=True, slots=True)
class Standing:
    """The position of a policy among all of them, on one axis of cost."""

    status: str  # ON, BEATEN, OPEN (neither is shown) or CHEAPEST
    p_on: float  # Holm-corrected; NaN for CHEAPEST
    p_beaten: float  # Holm-corrected; 1 where nothing is shown to cost as much or less
    beaten_by: int | None  # the policy with the smallest p-value, where beaten
    beaten: float  # accuracy less that of `beaten_by`; NaN where not beaten, as both ends
    beaten_low: float  # two-sided, for all such statements at once; agrees with p_beaten
    beaten_high: float
    chance: float  # share of resamples in which it is on the frontier, after `shrunk_together`
    margin: Margin
    cheapest_enough: bool  # good enough, and no other good enough policy is shown to cost less


def cost_interval(costs: np.ndarray, alpha: float = LEVEL) -> tuple[float, float]:
    """Return the t interval of level 1 - alpha of a mean cost, or of a mean difference of costs, (n_seeds,); with one
    seed its value."""
    middle = float(costs.mean())
    if len(costs) == 1:
        return middle, middle
    reach = float(scipy.special.stdtrit(len(costs) - 1, 1 - alpha / 2)) * float(costs.std(ddof=1)) / len(costs) ** 0.5
    return middle - reach, middle + reach


def _more(own: np.ndarray, other: np.ndarray, alpha: float) -> tuple[float, float]:
    """Return the interval of one cost less another; what cost nothing (M0) is certainly the cheaper."""
    low, high = cost_interval(by_seed(own, other), alpha)
    if own.min() > 0 and not other.any():
        low = max(low, float(own.min()))
    if other.min() > 0 and not own.any():
        high = min(high, -float(other.min()))
    return low, high


def on_axis(costs: Sequence[np.ndarray], differences: Differences, margins: Sequence[Margin]) -> list[Standing]:
    """Return the position of every policy on one axis of cost.

    Args:
        costs: costs of every policy, (n_seeds,), or one value for a policy without seeds (M0).
        margins: of every policy; `enough` says which are good enough.
    """
    n = len(costs)
    alpha = LEVEL / max(n * (n - 1) / 2, 1)  # one of the pairs may be picked afterwards
    more = [[_more(costs[i], costs[j], alpha) for j in range(n)] for i in range(n)]  # i's than j's
    others = [[j for j in range(n) if j != i] for i in range(n)]
    perhaps = [[j for j in others[i] if more[i][j][1] >= 0] for i in range(n)]  # cost as much or less
    shown = [[j for j in others[i] if more[i][j][0] >= 0] for i in range(n)]
    tested, undercut = ([i for i in range(n) if cheaper[i]] for cheaper in (perhaps, shown))
    p_on, p_beaten = np.full(n, math.nan), np.ones(n)
    p_on[tested] = holm([max(differences.better(i, j) for j in perhaps[i]) for i in tested])
    p_beaten[undercut] = holm(
        [min(1.0, len(shown[i]) * min(differences.better(j, i) for j in shown[i])) for i in undercut]
    )
    enough = [i for i in range(n) if margins[i].enough]
    resampled = differences.resampled
    found = []
    for i in range(n):
        beaten_by, beaten = None, (math.nan, math.nan, math.nan)
        if p_beaten[i] <= LEVEL:
            beaten_by = min(shown[i], key=lambda j, i=i: differences.better(j, i))  # type: ignore[misc]
            low, high = differences.interval(i, beaten_by, LEVEL / len(undercut) / len(shown[i]))
            beaten = differences.mean(i, beaten_by), low, min(high, 0.0)
        leads = resampled[i] > resampled[perhaps[i]].max(axis=0) if perhaps[i] else np.ones(1)
        on = CHEAPEST if not perhaps[i] else ON if p_on[i] <= LEVEL else OPEN
        found.append(
            Standing(
                *(BEATEN if beaten_by is not None else on, float(p_on[i]), float(p_beaten[i]), beaten_by, *beaten),
                chance=float(np.mean(leads)),
                margin=margins[i],
                cheapest_enough=i in enough and not any(more[i][j][0] > 0 for j in enough),
            )
        )
    return found
