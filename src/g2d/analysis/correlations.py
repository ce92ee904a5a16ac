"""Correlations over points of several seeds and models, with the level of each of them removed.

The seeds of a model share their values of K, so `permutation_p` permutes these for all its seeds together.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy

from g2d.analysis.statistics import LEVEL, UPPER, one_side

EXACT_UP_TO = 7  # points of one model whose 7! = 5040 orders are all counted
DRAWS = 9999


class Correlation(NamedTuple):
    """Pearson's r with its two-sided p-value under independence; all None if r is not defined."""

    r: float | None
    p: float | None
    n: int  # points
    low: float | None = None  # 95 % interval; None without degrees of freedom
    high: float | None = None


def fisher_interval(r: float, degrees: int, p: float) -> tuple[float | None, float | None]:
    """Return the interval of a correlation by Fisher's z = atanh r with variance 1 / degrees (Fisher 1921); None unless
    degrees > 0. It contains 0 exactly if the t-test does not reject."""
    if degrees <= 0:
        return None, None
    z = math.atanh(min(max(r, -1 + 1e-15), 1 - 1e-15))
    reach = float(scipy.stats.norm.ppf(UPPER)) / math.sqrt(degrees)
    low, high = math.tanh(z - reach), math.tanh(z + reach)
    return (min(low, 0.0), max(high, 0.0)) if p > LEVEL else one_side(low, high, high > -low)


def within_correlation(x: np.ndarray, y: np.ndarray, subjects: np.ndarray) -> Correlation:
    """Return the correlation of (n,) deviations from each subject's mean (repeated-measures correlation: Bakdash and
    Marusich 2017, eq. 3), with n - subjects - 1 degrees of freedom; undefined without one, or if a side does not vary
    within subjects."""
    frame = pd.DataFrame({"x": np.asarray(x, dtype=float), "y": np.asarray(y, dtype=float)})
    centered = frame - frame.groupby(np.asarray(subjects)).transform("mean")
    n, degrees = len(frame), len(frame) - len(set(subjects)) - 1
    spread = np.abs(centered).max() if n else pd.Series({"x": 0.0, "y": 0.0})
    if degrees < 1 or (spread <= 1e-12 * np.abs(frame).max()).any():
        return Correlation(None, None, n)
    a, b = centered["x"].to_numpy(), centered["y"].to_numpy()
    r = float(np.clip(a @ b / math.sqrt((a @ a) * (b @ b)), -1, 1))
    t = r * math.sqrt(degrees / max(1 - r * r, 1e-300))
    p = float(2 * scipy.stats.t.sf(abs(t), degrees))
    return Correlation(r, p, n, *fisher_interval(r, degrees - 1, p))


def ranks_within(values: np.ndarray, subjects: np.ndarray) -> np.ndarray:
    """Return ranks inside each subject, ties averaged, for Spearman's correlation."""
    return pd.Series(values, dtype=float).groupby(np.asarray(subjects)).rank().to_numpy()


def permutation_p(points: pd.DataFrame, x: str, y: str) -> float | None:
    """Return the two-sided permutation p-value that accuracy does not depend on a harvest's (K, G).

    None unless every seed of a model has every (K, G) once, because only then can they be exchanged. Exact for one
    model with at most `EXACT_UP_TO` points, otherwise from `DRAWS` random permutations.

    Args:
        points: columns model, seed, group_size, K, x and y.
    """
    products = []  # by model: (i, j) is the sum over seeds of x at point i times y at point j, both centred
    for _, model_points in points.groupby("model", sort=False):
        sides = [
            model_points.pivot_table(index="seed", columns=["group_size", "K"], values=side).to_numpy()
            for side in (x, y)
        ]
        if any(np.isnan(side).any() for side in sides) or sides[0].size != len(model_points):
            return None
        a, b = (side - side.mean(axis=1, keepdims=True) for side in sides)
        products.append(a.T @ b)
    observed = sum(float(np.trace(product)) for product in products)
    tolerance = 1e-9 * sum(float(np.abs(product).sum()) for product in products)
    if len(products) == 1 and len(products[0]) <= EXACT_UP_TO:
        orders = np.array(list(permutations(range(len(products[0])))))
        sums = products[0][orders, np.arange(len(products[0]))].sum(axis=1)
        return float((np.abs(sums) >= abs(observed) - tolerance).mean())
    rng = np.random.default_rng(0)
    sums = np.zeros(DRAWS)
    for product in products:
        places = np.tile(np.arange(len(product)), (DRAWS, 1))
        sums += product[rng.permuted(places, axis=1), np.arange(len(product))].sum(axis=1)
    return float((1 + (np.abs(sums) >= abs(observed) - tolerance).sum()) / (DRAWS + 1))
