"""One effect over several studies: a random-effects meta-analysis.

The variance between studies is DerSimonian and Laird's (1986), the interval of the mean Hartung and Knapp's (2001),
with their factor at least 1 (Knapp and Hartung 2003; Roever, Knapp and Friede 2015). The prediction interval is for the
true effect in another such study (Higgins, Thompson and Spiegelhalter 2009, eq. 12).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

FEWEST = 3  # studies: with two, the prediction interval has no degree of freedom


@dataclass(frozen=True, slots=True)
class Pooled:
    """The effect over all studies, on their scale."""

    n_studies: int
    effect: float
    standard_error: float  # of the effect, over studies
    tau: float  # standard deviation of the true effects between studies
    i_squared: float  # share of the studies' scatter that their own errors do not explain (Higgins and Thompson 2002)
    p_heterogeneity: float  # of Cochran's Q: the hypothesis that all studies have the same effect
    p_value: float  # two-sided, of no effect on average

    def interval(self, alpha: float) -> tuple[float, float]:
        """Of the mean of the true effects, level 1 - alpha."""
        reach = -float(scipy.special.stdtrit(self.n_studies - 1, alpha / 2)) * self.standard_error
        return self.effect - reach, self.effect + reach

    def prediction(self, alpha: float) -> tuple[float, float]:
        """Of the true effect in another study, level 1 - alpha."""
        spread = math.hypot(self.tau, self.standard_error)
        reach = -float(scipy.special.stdtrit(self.n_studies - 2, alpha / 2)) * spread
        return self.effect - reach, self.effect + reach


def pool_studies(
    effects: Sequence[float],
    variances: Sequence[float],
    shared: Sequence[float] | None = None,
    groups: Sequence[Hashable] | None = None,
) -> Pooled:
    """Pool the effects of at least three studies.

    Args:
        variances: of the effects' errors, above 0.
        shared: the part of each variance that studies of a group have in common, taken as fully correlated: benchmarks
            on which the same trainings were evaluated.
        groups: which group each study belongs to.

    Raises:
        ValueError: fewer than three studies.
    """
    if len(effects) < FEWEST:
        raise ValueError(f"{len(effects)} studies: a synthesis takes at least {FEWEST}")
    y, v = np.asarray(effects, dtype=float), np.asarray(variances, dtype=float)
    degrees, fixed = len(y) - 1, 1 / v
    q = float(fixed @ (y - fixed @ y / fixed.sum()) ** 2)
    between = max(q - degrees, 0.0) / float(fixed.sum() - fixed @ fixed / fixed.sum())
    total = float((1 / (v + between)).sum())
    weights = 1 / (v + between) / total
    effect = float(weights @ y)
    scatter = float(weights @ (y - effect) ** 2) * total / degrees  # Hartung and Knapp's factor
    variance = max(scatter, 1.0) / total
    for group in set(groups or ()):
        own = [i for i, other in enumerate(groups or ()) if other == group]
        in_common = weights[own] * np.sqrt(np.asarray(shared)[own])
        variance += float(in_common.sum() ** 2 - in_common @ in_common)
    error = math.sqrt(variance)
    return Pooled(
        n_studies=len(y),
        effect=effect,
        standard_error=error,
        tau=math.sqrt(between),
        i_squared=max(1 - degrees / q, 0.0) if q else 0.0,
        p_heterogeneity=float(scipy.special.chdtrc(degrees, q)),
        p_value=2 * float(scipy.special.stdtr(degrees, -abs(effect) / error)),
    )
