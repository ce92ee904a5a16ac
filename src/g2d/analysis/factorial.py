"""Level x temperature: two-way analysis of variance of pass@1, rho, mu and H.

    y[l, t] = mean + level[l] + temperature[t] + interaction[l, t]

with sum-to-zero effects over the cells. Intervals resample problems within their level, with their answers at all
temperatures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.informativeness import informative_parts, success_counts
from g2d.analysis.statistics import RESAMPLES, percentile_interval

METRICS = ("pass_at_1", "pairability", "mid_band", "entropy")


def factorial_cells(rollouts: Mapping[float, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Yield a row per level and temperature, from rollouts of the same problems by temperature; problems without a
    level are left out.

    Raises:
        ValueError: the problems differ between temperatures.
    """
    for level, counts in _by_level(rollouts).items():
        numerators, denominators = _sums(counts)
        values = _cell(np.ones((1, numerators.shape[1])), numerators, denominators)[:, 0]
        for metrics, temperature, frame in zip(values.T, sorted(rollouts), counts, strict=True):
            yield {
                **{"level": level, "temperature": temperature, "n": len(frame)},
                **dict(zip(METRICS, metrics, strict=True)),
                "all_wrong": (frame["correct"] == 0).mean(),
                "all_correct": (frame["correct"] == frame["n"]).mean(),
            }


def factorial_effects(
    rollouts: Mapping[float, pd.DataFrame], resamples: int = RESAMPLES, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield the effects of level, temperature and their interaction on every metric, from rollouts as for
    `factorial_cells`.

    An effect has a 95 % percentile interval. share is the source's part of the sum of squares between cells, sampling
    noise included. NaN if a cell has no value, such as mu without pairable problems.
    """
    by_level = _by_level(rollouts)
    if not by_level or len(rollouts) < 2:
        return
    rng = np.random.default_rng(seed)
    levels = []
    for counts in by_level.values():
        numerators, denominators = _sums(counts)
        n = numerators.shape[1]
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
        levels.append(_cell(np.vstack([np.ones(n), drawn]), numerators, denominators))
    cells = np.stack(levels, axis=2)  # (metric, estimate and resamples, level, temperature)
    sources = _decompose(cells)
    each = np.zeros_like(cells[:, 0])
    squares = {name: np.square(effect[:, 0] + each).sum((1, 2)) for name, effect in sources.items()}
    total = sum(squares.values())
    for m, metric in enumerate(METRICS):
        for source, effects in sources.items():
            share = squares[source][m] / total[m] if total[m] > 0 else None
            for at in np.ndindex(effects.shape[2:]):
                values = effects[m, :, *at]
                low, high = percentile_interval(values[1:])
                yield {
                    **{"metric": metric, "source": source},
                    "level": None if source == "temperature" else list(by_level)[at[0]],
                    "temperature": None if source == "level" else sorted(rollouts)[at[1]],
                    **{"effect": values[0], "ci_low": low, "ci_high": high, "share": share},
                }


def _by_level(rollouts: Mapping[float, pd.DataFrame]) -> dict[int, list[pd.DataFrame]]:
    counts = [success_counts(rollouts[temperature]).sort_values("problem_id") for temperature in sorted(rollouts)]
    for temperature, frame in zip(sorted(rollouts), counts, strict=True):
        if list(frame["problem_id"]) != list(counts[0]["problem_id"]):
            raise ValueError(
                f"the rollouts at temperature {temperature:g} are of other problems than those at {min(rollouts):g}: "
                "calibrate both with the same calibration.problems_per_level and calibration.seed"
            )
    levels = sorted(counts[0]["level"].dropna().unique()) if counts else []
    return {int(level): [frame[frame["level"] == level] for frame in counts] for level in levels}


def _sums(counts: list[pd.DataFrame]) -> tuple[np.ndarray, np.ndarray]:
    """Return the terms of both sums whose ratio is a metric, (metric, problem, temperature) each."""
    ratios = [
        {"pass_at_1": (frame["p_hat"].to_numpy(), np.ones(len(frame)))} | informative_parts(frame) for frame in counts
    ]
    terms = np.array([[parts[metric] for metric in METRICS] for parts in ratios])  # (temperature, metric, sum, problem)
    return np.moveaxis(terms[:, :, 0], 0, 2), np.moveaxis(terms[:, :, 1], 0, 2)


def _cell(weights: np.ndarray, numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Return metrics of one level under weights of its problems, (metric, weights, temperature); NaN if undefined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (weights @ numerators) / (weights @ denominators)


def _decompose(cells: np.ndarray) -> dict[str, np.ndarray]:
    mean = cells.mean((-2, -1), keepdims=True)
    level = cells.mean(-1, keepdims=True) - mean
    temperature = cells.mean(-2, keepdims=True) - mean
    return {"level": level, "temperature": temperature, "interaction": cells - mean - level - temperature}
