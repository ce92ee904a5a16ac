"""Tests of policies on the frontier of accuracy against cost, and of dominated policies, on paired answers.

- *on the frontier*: better than each policy that is not shown to cost more. The p-value is the largest of these
  comparisons (intersection-union, Berger 1982, "Multiparameter hypothesis testing and acceptance sampling").
- *beaten*: worse than some policy that is shown to cost as much or less. The p-value is the smallest of these
  comparisons, times their number.

Costs are compared by t intervals over seeds (Bonferroni over all pairs); costs of one seed have no error. Both p-values
are two-sided and Holm-corrected over the policies, at half the level each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from g2d.analysis.margins import Differences, by_seed
from g2d.analysis.statistics import LEVEL, holm

ON, BEATEN, OPEN, CHEAPEST = "on the frontier", "beaten", "open", "nothing cheaper"


@dataclass(frozen=True, slots=True)
class Standing:
    status: str  # ON, BEATEN, OPEN (neither is shown) or CHEAPEST
    p_on: float  # Holm-corrected; NaN for CHEAPEST
    p_beaten: float  # Holm-corrected; 1 if no policy is shown to cost as much or less
    beaten_by: int | None  # the policy with the smallest p-value, if beaten
    beaten: float  # accuracy minus the accuracy of `beaten_by`; NaN, like both ends, if not beaten
    beaten_low: float  # 95 %, for all such statements at once; agrees with p_beaten
    beaten_high: float
    cheapest_enough: bool  # good enough, and no other good enough policy is shown to cost less


def cost_interval(costs: np.ndarray, alpha: float = LEVEL) -> tuple[float, float]:
    """Return the t interval of a mean over (n_seeds,) costs; with one seed its value."""
    middle = float(costs.mean())
    if len(costs) == 1:
        return middle, middle
    reach = float(scipy.special.stdtrit(len(costs) - 1, 1 - alpha / 2)) * float(costs.std(ddof=1)) / len(costs) ** 0.5
    return middle - reach, middle + reach


def _excess_cost(own: np.ndarray, other: np.ndarray, alpha: float) -> tuple[float, float]:
    """Return the interval of one cost minus another; M0, which has no costs, is certainly cheaper."""
    low, high = cost_interval(by_seed(own, other), alpha)
    if own.min() > 0 and not other.any():
        low = max(low, float(own.min()))
    if other.min() > 0 and not own.any():
        high = min(high, -float(other.min()))
    return low, high


def on_axis(costs: Sequence[np.ndarray], differences: Differences, enough: Sequence[bool]) -> list[Standing]:
    """Return the status of every policy, from its (n_seeds,) costs and whether it is good enough (`Margin.enough`)."""
    n = len(costs)
    alpha = LEVEL / max(n * (n - 1) / 2, 1)  # one of the pairs may be picked afterwards
    excess = [[_excess_cost(costs[i], costs[j], alpha) for j in range(n)] for i in range(n)]
    others = [[j for j in range(n) if j != i] for i in range(n)]
    perhaps_cheaper = [[j for j in others[i] if excess[i][j][1] >= 0] for i in range(n)]  # or as cheap
    shown_cheaper = [[j for j in others[i] if excess[i][j][0] >= 0] for i in range(n)]
    tested, undercut = ([i for i in range(n) if cheaper[i]] for cheaper in (perhaps_cheaper, shown_cheaper))
    p_on, p_beaten = np.full(n, math.nan), np.ones(n)
    p_on[tested] = holm([max(differences.better(i, j) for j in perhaps_cheaper[i]) for i in tested])
    p_beaten[undercut] = holm(
        [min(1.0, len(shown_cheaper[i]) * min(differences.better(j, i) for j in shown_cheaper[i])) for i in undercut]
    )
    standings = []
    for i in range(n):
        beaten_by, beaten = None, (math.nan, math.nan, math.nan)
        status = CHEAPEST if not perhaps_cheaper[i] else ON if p_on[i] <= LEVEL else OPEN
        if p_beaten[i] <= LEVEL:
            status = BEATEN
            beaten_by = min(shown_cheaper[i], key=lambda j, i=i: differences.better(j, i))  # type: ignore[misc]
            low, high = differences.interval(i, beaten_by, LEVEL / len(undercut) / len(shown_cheaper[i]))
            beaten = differences.mean(i, beaten_by), low, min(high, 0.0)
        cheapest = enough[i] and not any(excess[i][j][0] > 0 for j in range(n) if enough[j])
        standings.append(Standing(status, float(p_on[i]), float(p_beaten[i]), beaten_by, *beaten, cheapest))
    return standings
