"""H and mu of the true success probabilities of prompts, from the counts of a harvest (docs/analysis.md).

The distribution of p over prompts is estimated by nonparametric maximum likelihood (Laird 1978; for binomial counts
Lord 1969) on a grid, by the EM algorithm. H and mu are its means, with every p weighted by its probability of being
pairable. pairability needs no correction.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy

GRID = np.linspace(0, 1, 201)  # holds 3/8 and 5/8
ITERATIONS = 100  # stopped early: more fit the noise, which mu shows first


def mixing_distribution(counts: pd.DataFrame) -> np.ndarray:
    """Weights of `GRID`: the estimated distribution of the success probability over prompts.

    Args:
        counts: one row per prompt with n rollouts (>= 1) and correct ones, as from `success_counts`; not empty.

    Returns:
        (len(GRID),) weights that sum to 1.
    """
    cells = counts.groupby(["correct", "n"]).size()
    correct, n = (cells.index.get_level_values(name).to_numpy()[:, None] for name in ("correct", "n"))
    likelihood = scipy.stats.binom.pmf(correct, n, GRID)
    shares = cells.to_numpy() / len(counts)
    weights = np.full(len(GRID), 1 / len(GRID))
    for _ in range(ITERATIONS):
        weights *= likelihood.T @ (shares / (likelihood @ weights))
    return weights


def corrected(counts: pd.DataFrame) -> tuple[float | None, float | None]:
    """H (bits) and mu of the true success probabilities of pairable prompts.

    Args:
        counts: as for `mixing_distribution`; may be empty.

    Returns:
        Both None where no prompt is pairable.
    """
    if not ((counts["correct"] > 0) & (counts["correct"] < counts["n"])).any():
        return None, None
    sizes = counts.groupby("n").size()
    n = sizes.index.to_numpy()[:, None]
    inside = GRID[1:-1]  # p = 0 and p = 1 are never pairable
    pairable = sizes.to_numpy() @ (1 - inside**n - (1 - inside) ** n)
    weights = mixing_distribution(counts)[1:-1] * pairable
    weights /= weights.sum()
    entropy = -inside * np.log2(inside) - (1 - inside) * np.log2(1 - inside)
    middle = (inside >= 3 / 8) & (inside <= 5 / 8)
    return float(weights @ entropy), float(weights @ middle)
