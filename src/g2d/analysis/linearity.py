"""Linearity of a training: how well each weight follows a straight line in the number of steps (arXiv 2601.04537)."""

from __future__ import annotations

import numpy as np

LINEAR = 0.7  # R^2 above which the paper calls a weight linear


def r_squared(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return R^2 of the least-squares line of each weight, from (n, weights) values at (n,) steps, at least three (two
    are always on a line); NaN if a weight never changes.
    """
    x, y = steps - steps.mean(), values - values.mean(axis=0)
    covariance, total = x @ y, (y**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, covariance**2 / ((x**2).sum() * total), np.nan)
