"""The smallest margin by which a policy is shown to be at most worse than the best (non-inferiority).

It is the largest upper bound on another policy's accuracy less its own (Hsu 1984, "Constrained simultaneous confidence
intervals for multiple comparisons with the best"). Only the n - 1 one-sided bounds against the truly best policy have
to hold, each at level 5 % / (n - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from g2d.analysis.crossed import error_of_difference
from g2d.analysis.statistics import LEVEL


@dataclass(frozen=True, slots=True)
class Margin:
    """Margin of a policy against the best other policy, in accuracy, -1..1."""

    behind: float  # accuracy of the best other policy minus its own
    margin_shown: float  # one-sided 95 % bound on `behind` for all policies at once; 0 if it is shown to be the best


def smallest_margins(answers: Sequence[np.ndarray]) -> list[Margin]:
    """Return each policy's margin against the best other one.

    Args:
        answers: (n_seeds, n_problems) shares of right answers of each policy, with the same seeds and problems.
    """
    n = len(answers)
    margins = []
    for i, own in enumerate(answers):
        leads = [other - own for j, other in enumerate(answers) if j != i]
        # One-sided at 5 % / (n - 1) is two-sided at twice that.
        bounds = [error_of_difference(lead).interval(2 * LEVEL / (n - 1))[1] for lead in leads]
        behind = max((float(lead.mean()) for lead in leads), default=0.0)
        margins.append(Margin(behind, max([0.0, *bounds])))
    return margins
