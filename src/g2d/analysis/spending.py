"""Error spent over the looks at a growing experiment (Lan and DeMets 1983, "Discrete sequential boundaries").

The statistic at the looks is a Brownian motion in the information fraction (1 / variance, relative to the last look).
Boundaries come from its joint distribution by recursive integration (Armitage, McPherson and Rowe 1969).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

Spending = Literal["obrien_fleming", "pocock"]
FARTHEST = 12.0  # standard deviations: a boundary beyond which nothing is left to spend
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def spent(fraction: float, level: float, spending: Spending) -> float:
    """Return the two-sided error spent up to an information fraction (Lan and DeMets 1983, alpha_1* and alpha_2*)."""
    if spending == "pocock":
        return level * math.log1p((math.e - 1) * fraction)
    return float(4 * scipy.special.ndtr(scipy.special.ndtri(level / 4) / math.sqrt(fraction)))


def nominal_level(fractions: Sequence[float], level: float, spending: Spending, power: float = 1.0) -> float:
    """Return the two-sided level of the last of these looks for which all looks err as often as `spent`. A look without
    new information has the level of the look before it.

    Args:
        fractions: information fraction of every look so far, not falling.
        level: two-sided error up to fraction 1.
        power: exponent of the fractions; above 1, the error is spent later.
    """
    return float(2 * scipy.special.ndtr(-boundaries(tuple(dict.fromkeys(fractions)), level, spending, power)[-1]))


@functools.lru_cache(maxsize=1 << 16)
def boundaries(fractions: tuple[float, ...], level: float, spending: Spending, power: float = 1.0) -> tuple[float, ...]:
    """Return boundaries of |z| at every look, fractions rising; arguments as for `nominal_level`."""
    bounds: list[float] = []
    paths = _Paths(np.zeros(1), np.ones(1))
    before = error = 0.0
    for fraction in fractions:
        total = spent(fraction**power, level, spending)
        bound = paths.bound(total - error, math.sqrt(fraction - before), FARTHEST * math.sqrt(fraction))
        bounds.append(bound / math.sqrt(fraction))
        paths = paths.inside(bound, math.sqrt(fraction - before))
        before, error = fraction, total
    return tuple(bounds)


@dataclass(frozen=True)
class _Paths:
    """The Brownian motion at a look, on paths that have crossed no boundary: Gauss's points, and density x weight."""

    points: np.ndarray
    density: np.ndarray

    def bound(self, error: float, step: float, farthest: float) -> float:
        """Return the boundary that a part `error` of all paths crosses in a step of this standard deviation."""

        def excess(bound: float) -> float:
            below, above = (-bound - self.points) / step, (self.points - bound) / step
            return float(self.density @ (scipy.special.ndtr(below) + scipy.special.ndtr(above))) - error

        return farthest if excess(farthest) >= 0 else float(scipy.optimize.brentq(excess, 1e-9, farthest))

    def inside(self, bound: float, step: float) -> _Paths:
        reached = bound * _NODES
        moves = np.exp(-0.5 * ((reached - self.points[:, None]) / step) ** 2) / (step * math.sqrt(2 * math.pi))
        return _Paths(reached, bound * _WEIGHTS * (self.density @ moves))
