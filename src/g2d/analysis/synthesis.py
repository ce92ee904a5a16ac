"""One effect over several studies: their mean, for these studies, and a random-effects meta-analysis, for others.

The mean is unweighted, with a t interval from the studies' errors (degrees of freedom: Satterthwaite 1946, eq. 17).

The random-effects model has DerSimonian and Laird's variance between studies (1986). The interval of its mean is
Hartung and Knapp's (2001), with their factor at least 1 (Knapp and Hartung 2003; Roever, Knapp and Friede 2015). The
prediction interval is for the true effect in another such study (Higgins, Thompson and Spiegelhalter 2009, eq. 12).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from g2d.analysis import FEWEST_STUDIES


@dataclass(frozen=True, slots=True)
class Pooled:
    """Mean of the true effects over all such studies (`effect`), and over these (`mean`); p-values are two-sided, and
    intervals of level 1 - alpha."""

    n_studies: int
    effect: float
    standard_error: float
    tau: float  # standard deviation of the true effects between studies
    i_squared: float  # share of the studies' scatter that their own errors do not explain (Higgins and Thompson 2002)
    p_heterogeneity: float  # Cochran's Q test of equal effects
    p_value: float
    mean: float
    mean_error: float
    mean_degrees: float  # degrees of freedom of `mean_error`

    @property
    def mean_p_value(self) -> float:
        return 2 * float(scipy.special.stdtr(self.mean_degrees, -abs(self.mean) / self.mean_error))

    def mean_interval(self, alpha: float) -> tuple[float, float]:
        return _t_interval(self.mean, self.mean_error, self.mean_degrees, alpha)

    def interval(self, alpha: float) -> tuple[float, float]:
        return _t_interval(self.effect, self.standard_error, self.n_studies - 1, alpha)

    def prediction(self, alpha: float) -> tuple[float, float]:
        """Return the interval of the true effect in another study."""
        return _t_interval(self.effect, math.hypot(self.tau, self.standard_error), self.n_studies - 2, alpha)


def _t_interval(middle: float, error: float, degrees: float, alpha: float) -> tuple[float, float]:
    reach = -float(scipy.special.stdtrit(degrees, alpha / 2)) * error
    return middle - reach, middle + reach


def pool_studies(
    effects: Sequence[float],
    variances: Sequence[float],
    shared: Sequence[float] | None = None,
    groups: Sequence[Hashable] | None = None,
    degrees: Sequence[float] | None = None,
) -> Pooled:
    """Pool the effects of at least three studies, else raise a ValueError.

    Args:
        variances: squared standard errors of the effects, above 0.
        shared: part of each variance that is fully correlated in a group, such as benchmarks of the same trainings.
        groups: group of each study.
        degrees: degrees of freedom of each variance; None: the variances are known.
    """
    if len(effects) < FEWEST_STUDIES:
        raise ValueError(f"{len(effects)} studies: a synthesis takes at least {FEWEST_STUDIES}")
    y, v = np.asarray(effects, dtype=float), np.asarray(variances, dtype=float)
    n, fixed = len(y), 1 / v
    q = float(fixed @ (y - fixed @ y / fixed.sum()) ** 2)
    between = max(q - n + 1, 0.0) / float(fixed.sum() - fixed @ fixed / fixed.sum())
    total = float((1 / (v + between)).sum())
    weights = 1 / (v + between) / total
    effect = float(weights @ y)
    scatter = float(weights @ (y - effect) ** 2) * total / (n - 1)  # Hartung and Knapp's factor

    def in_common(weights: np.ndarray) -> float:
        """Return the variance of a weighted sum from covariances in groups."""
        total = 0.0
        for group in set(groups or ()):
            members = [i for i, other in enumerate(groups or ()) if other == group]
            parts = weights[members] * np.sqrt(np.asarray(shared)[members])
            total += float(parts.sum() ** 2 - parts @ parts)
        return total

    error = math.sqrt(max(scatter, 1.0) / total + in_common(weights))
    of_mean = float(v.sum()) / n**2 + in_common(np.full(n, 1 / n))
    uncertainty = 0.0 if degrees is None else float(((v / n**2) ** 2 / np.asarray(degrees)).sum())
    return Pooled(
        n_studies=n,
        effect=effect,
        standard_error=error,
        tau=math.sqrt(between),
        i_squared=max(1 - (n - 1) / q, 0.0) if q else 0.0,
        p_heterogeneity=float(scipy.special.chdtrc(n - 1, q)),
        p_value=2 * float(scipy.special.stdtr(n - 1, -abs(effect) / error)),
        mean=float(y.mean()),
        mean_error=math.sqrt(of_mean),
        mean_degrees=of_mean**2 / uncertainty if uncertainty else math.inf,
    )
