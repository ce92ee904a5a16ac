"""Saturation of online training: a sigmoid of accuracy against gradient steps (arXiv 2510.13786 uses compute).

    accuracy(K) = start + (asymptote - start) / (1 + (midpoint / K)^slope)

start is the accuracy of M0. The curve is fitted by least squares to the accuracies over seeds. Intervals are from the
crossed bootstrap of `statistics.resample`, with midpoint and slope from a grid and the asymptote exact (Golub and
Pereyra 1973).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from g2d.analysis.statistics import percentile_interval, resample

LEVEL = 0.95
BEYOND = 4.0  # midpoints are looked for from a fourth of the first K to four times the last one
SLOPES = (0.5, 8.0)

Status = Literal["fits", "no change", "no sigmoid", "not saturated"]  # `captions.yaml` explains them


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float  # an end of the interval that the data leave open is NaN
    high: float


@dataclass(frozen=True)
class Saturation:
    status: Status
    asymptote: Estimate  # accuracy in 0..1
    midpoint: Estimate  # K at which half of the change is reached
    slope: Estimate
    nearly: Estimate  # K at which 90 % of the change is reached: midpoint * 9^(1 / slope)


def sigmoid(steps: np.ndarray, start: float, asymptote: float, midpoint: float, slope: float) -> np.ndarray:
    return start + (asymptote - start) * _shape(steps, midpoint, slope)


def _shape(steps: np.ndarray, midpoint: float | np.ndarray, slope: float | np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + (midpoint / steps) ** slope))


def saturation(steps: Sequence[int], before: np.ndarray, answers: Sequence[np.ndarray]) -> Saturation:
    """Fit a sigmoid to an online training at four or more K > 0, ascending.

    Args:
        before: shares of right answers of M0, (1, n_questions).
        answers: the same at every K, (n_seeds, n_questions) each.
    """
    k = np.array(steps, dtype=float)
    start, means = float(before.mean()), np.array([values.mean() for values in answers])
    asymptote, midpoint, slope = fitted(k, start, means)

    starts = resample(before)
    resampled = np.stack([resample(values) for values in answers], axis=1)
    curves = _search(k, starts, resampled)
    asymptotes, midpoints, slopes = curves.T
    nearly = midpoints * 9 ** (1 / slopes)
    apart = means - sigmoid(k, start, asymptote, midpoint, slope)
    change = (asymptotes - starts)[:, None] * _shape(k, midpoints[:, None], slopes[:, None])
    noise = resampled - starts[:, None] - change - apart

    within = (k[0] / BEYOND, k[-1] * BEYOND)
    estimates = (
        _estimate(asymptote, asymptotes, (-math.inf, math.inf)),
        _estimate(midpoint, midpoints, within),
        _estimate(slope, slopes, SLOPES),
        _estimate(midpoint * 9 ** (1 / slope), nearly, within),
    )
    low, high = percentile_interval(asymptotes - starts)
    status: Status = "fits"
    if low <= 0 <= high:
        status = "no change"
    elif np.square(apart).mean() > np.quantile(np.square(noise).mean(axis=1), LEVEL):
        status = "no sigmoid"
    elif percentile_interval(midpoints)[1] > k[-1]:
        status = "not saturated"
    return Saturation(status, *estimates)


def fitted(steps: np.ndarray, start: float, accuracies: np.ndarray) -> tuple[float, float, float]:
    [(asymptote, midpoint, slope)] = _search(steps, np.array([start]), accuracies[None])
    low = (0.0, math.log(steps[0] / BEYOND), SLOPES[0])
    high = (1.0, math.log(steps[-1] * BEYOND), SLOPES[1])
    fit = scipy.optimize.least_squares(
        lambda parameters: sigmoid(steps, start, parameters[0], math.exp(parameters[1]), parameters[2]) - accuracies,
        np.clip((asymptote, math.log(midpoint), slope), low, high),
        bounds=(low, high),
        x_scale=(0.1, 1.0, 1.0),
    )
    return float(fit.x[0]), math.exp(fit.x[1]), float(fit.x[2])


def _search(steps: np.ndarray, starts: np.ndarray, accuracies: np.ndarray) -> np.ndarray:
    """Return least-squares asymptote, midpoint and slope, (n, 3), by grid search, from accuracies of M0, (n,), and at
    each K, (n, n_k)."""
    midpoints, slopes = np.meshgrid(
        np.geomspace(steps[0] / BEYOND, steps[-1] * BEYOND, 60), np.geomspace(*SLOPES, 20), indexing="ij"
    )
    midpoints, slopes = midpoints.ravel(), slopes.ravel()
    shapes = _shape(steps, midpoints[:, None], slopes[:, None])
    dots, squares = (accuracies - starts[:, None]) @ shapes.T, (shapes**2).sum(axis=1)
    changes = np.clip(dots / squares, -starts[:, None], 1 - starts[:, None])
    best = (changes**2 * squares - 2 * changes * dots).argmin(axis=1)
    asymptotes = starts + np.take_along_axis(changes, best[:, None], axis=1)[:, 0]
    return np.stack([asymptotes, midpoints[best], slopes[best]], axis=1)


def _estimate(value: float, resampled: np.ndarray, bounds: tuple[float, float]) -> Estimate:
    low, high = percentile_interval(resampled)
    return Estimate(
        value,
        low if low > bounds[0] * (1 + 1e-9) else math.nan,
        high if high < bounds[1] * (1 - 1e-9) else math.nan,
    )
