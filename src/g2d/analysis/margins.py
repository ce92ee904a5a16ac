"""The smallest margin by which a policy is shown to be at most worse than the best (non-inferiority).

It is the largest upper bound on another policy's accuracy less its own (Hsu 1984, "Constrained simultaneous confidence
intervals for multiple comparisons with the best"). Only the n - 1 one-sided bounds against the truly best policy have
to hold, each at level 5 % / (n - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from g2d.analysis.crossed import Error, SeedPool, error_of_difference
from g2d.analysis.statistics import LEVEL

Pool = Callable[[int, int], SeedPool | None]


@dataclass(frozen=True, slots=True)
class Margin:
    """Margin of a policy against the best other policy, in accuracy, -1..1."""

    behind: float  # accuracy of the best other policy minus its own
    margin_shown: float  # one-sided 95 % bound on `behind` for all policies at once; 0 if it is shown to be the best


class Differences:
    """Every difference between two policies and its error, computed once.

    Args:
        answers: (n_seeds, n_problems) shares of right answers of each policy, with the same problems and first seeds;
            one row for a policy without seeds (M0).
        pool: returns the pool of `crossed.error_of_difference` for two indices of policies.
        clusters: cluster of each problem.
    """

    def __init__(
        self, answers: Sequence[np.ndarray], pool: Pool = lambda i, j: None, clusters: np.ndarray | None = None
    ) -> None:
        self.answers = [np.asarray(values, dtype=float) for values in answers]
        self._errors: dict[tuple[int, int], Error] = {}
        for i, j in combinations(range(len(answers)), 2):
            deltas = by_seed(self.answers[i], self.answers[j])
            paired = len(self.answers[i]) > 1 and len(self.answers[j]) > 1
            self._errors[i, j] = error = error_of_difference(deltas, pool(i, j), paired, clusters)
            self._errors[j, i] = replace(error, middle=-error.middle)

    def mean(self, i: int, j: int) -> float:
        return float(self.answers[i].mean() - self.answers[j].mean())

    def interval(self, i: int, j: int, alpha: float) -> tuple[float, float]:
        """Return the two-sided interval of `mean`, level 1 - alpha."""
        return self._errors[i, j].interval(alpha)


def by_seed(values: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return values minus other over the common first seeds; one row is a policy without seeds."""
    n = min(len(values), len(other))
    return values[:n] - other[:n] if n > 1 else values - other


def smallest_margins(differences: Differences) -> list[Margin]:
    """Return each policy's margin against the best other one."""
    n = len(differences.answers)
    margins = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        # One-sided at 5 % / (n - 1) is two-sided at twice that.
        bounds = [differences.interval(j, i, 2 * LEVEL / (n - 1))[1] for j in others]
        shortfall = max((differences.mean(j, i) for j in others), default=0.0)
        margins.append(Margin(shortfall, max([0.0, *bounds])))
    return margins
