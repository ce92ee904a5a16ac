"""The frontier of accuracy against cost, with its uncertainty: who is on it, who is not, and what is good enough.

A policy is on the frontier if no policy that costs as much or less is as good. Drawn through estimates the frontier is
a line through the lucky ones, so three statements are tested instead, on paired answers (`g2d.analysis.crossed`):

- *on the frontier*: better than every policy that costs as much or less. All of these differences must show, so the
  largest of their p-values counts (intersection-union, Berger 1982, "Multiparameter hypothesis testing and acceptance
  sampling").
- *beaten*: some policy that costs as much or less is better: the smallest of these p-values, times their number.
- *good enough*: not worse than any policy, at whatever cost, by the margin or more: one-sided, the largest again, which
  compares with the best policy without knowing which one that is (Hsu 1984, "Constrained simultaneous confidence
  intervals for multiple comparisons with the best").

Each statement's p-values are Holm-corrected over the policies, the first two at half the level each, as they are
two-sided and only one side is claimed: of all the statements on who is on the frontier or beaten, and of all those on
who is good enough, a false one is made in no more than 5 % of grids (tests/analysis/test_frontier.py simulates it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from g2d.analysis.comparisons import LEVEL
from g2d.analysis.crossed import Error, centre, error_of_difference
from g2d.analysis.statistics import drawn_together, holm, resample

ON, BEATEN, OPEN = "on the frontier", "beaten", "open"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a policy stands among all of them, on one axis of cost."""

    status: str  # ON, BEATEN or OPEN, which is neither shown
    p_on: float  # Holm-corrected; NaN for a policy that no other undercuts, which is on the frontier by definition
    p_beaten: float  # Holm-corrected; 1 where nothing is cheaper
    beaten_by: int | None  # the policy that shows it most clearly, where beaten
    chance: float  # share of resamples in which it is on the frontier, after `drawn_together`
    p_enough: float  # Holm-corrected, one-sided: not worse than any other policy by the margin
    enough: bool


Pool = Callable[[int, int], np.ndarray | None]


def standings(
    costs: Sequence[float], answers: Sequence[np.ndarray], margin: float, pool: Pool = lambda i, j: None
) -> list[Standing]:
    """Where every policy stands.

    Args:
        costs: of each policy, on one axis.
        answers: of each, (n_seeds, n_problems) shares of right answers in 0..1, the same problems in the same order,
            the same seeds, or one row for a policy without seeds (M0).
        margin: by how much a policy that is good enough may be worse, in 0..1.
        pool: of two policies, accuracies that tell the variance between seeds (`comparisons.compare`).
    """
    return on_axis(costs, Differences(answers, pool), margin)


class Differences:
    """Every difference between two policies and its error, computed once for all axes.

    Args: as for `standings`.
    """

    def __init__(self, answers: Sequence[np.ndarray], pool: Pool = lambda i, j: None) -> None:
        self.answers = [np.asarray(own, dtype=float) for own in answers]
        self._found: dict[tuple[int, int], tuple[float, Error]] = {}
        for i, j in combinations(range(len(answers)), 2):
            deltas = self.answers[i] - self.answers[j]
            paired = len(self.answers[i]) > 1 and len(self.answers[j]) > 1
            error = error_of_difference(deltas, pool(i, j), paired)
            self._found[i, j] = centre(deltas), error
            self._found[j, i] = -centre(deltas), error
        # Rounded, because equal values reached through different sums differ in the last bit.
        self.resampled = drawn_together(np.stack([resample(own) for own in self.answers])).round(12)
        self.better, self.not_worse = cache(self._better), cache(self._not_worse)

    def _better(self, i: int, j: int) -> float:
        """Two-sided p-value of the difference where policy i is ahead of j, else 1."""
        middle, error = self._found[i, j]
        return error.p_value(middle) if middle > 0 else 1.0

    def _not_worse(self, i: int, j: int, margin: float) -> float:
        """One-sided p-value of: policy i is less than the margin worse than j."""
        middle, error = self._found[i, j]
        distance = middle + margin
        half = error.p_value(distance) / 2 if distance else 0.5
        return half if distance > 0 else 1 - half


def on_axis(costs: Sequence[float], differences: Differences, margin: float) -> list[Standing]:
    """As `standings`, from differences that are known already."""
    n = len(costs)
    cheaper = [[j for j in range(n) if j != i and costs[j] <= costs[i]] for i in range(n)]
    undercut = [i for i in range(n) if cheaper[i]]
    p_on, p_beaten = np.full(n, math.nan), np.ones(n)
    p_on[undercut] = holm([max(differences.better(i, j) for j in cheaper[i]) for i in undercut])
    p_beaten[undercut] = holm(
        [min(1.0, len(cheaper[i]) * min(differences.better(j, i) for j in cheaper[i])) for i in undercut]
    )
    enough = [max((differences.not_worse(i, j, margin) for j in range(n) if j != i), default=0.0) for i in range(n)]
    p_enough = holm(enough)
    resampled = differences.resampled
    found = []
    for i in range(n):
        beaten = p_beaten[i] <= LEVEL
        ahead = resampled[i] > resampled[cheaper[i]].max(axis=0) if cheaper[i] else np.ones(1)
        found.append(
            Standing(
                status=BEATEN if beaten else ON if not p_on[i] > LEVEL else OPEN,
                p_on=float(p_on[i]),
                p_beaten=float(p_beaten[i]),
                beaten_by=min(cheaper[i], key=lambda j, i=i: differences.better(j, i)) if beaten else None,  # type: ignore[misc]
                chance=float(np.mean(ahead)),
                p_enough=float(p_enough[i]),
                enough=bool(p_enough[i] <= LEVEL),
            )
        )
    return found
