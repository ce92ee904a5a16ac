"""Measures of online trainings by step, from the trainer's log and its rollouts; and their collapse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import pandas as pd

# Names of each measure in trainers' logs; the first in a log is used. `captions.yaml` defines the measures.
LOGGED = {
    "reward": ("reward",),
    "entropy": ("entropy",),
    "length": ("completions/mean_length",),
    "no_signal": ("frac_reward_zero_std",),
    "clipped": ("clip_ratio/region_mean",),
    "ratio": ("sampling/importance_sampling_ratio/mean",),
    "capped": ("sampling/capped",),
    "distance": ("kl", "log_ratio"),
}
MEASURES = (*LOGGED, "staleness")
WATCHED = ("entropy", "length")  # a fall of these is a collapse
RATIO_BOUND = 0.1  # distance of a training's mean ratio from 1 that the page warns of
SHARE_OF_STEPS, FEWEST_STEPS = 0.1, 5  # share and smallest number of steps that are averaged to detect a collapse


def steps_of(
    log: Sequence[Mapping[str, Any]], consumed: pd.DataFrame | None = None, beta: float | None = None
) -> pd.DataFrame:
    """Return one row per gradient step: `tokens` so far and `MEASURES`, null if nothing was logged.

    Args:
        log: rows of metrics.jsonl. If a generation serves several steps, only the first has its tokens.
        consumed: `step` and `generated_at` of the rollouts.
        beta: factor of the log-ratios of policy and reference in DPO's `rewards/chosen` and `rewards/rejected`.
    """
    rows = pd.DataFrame(log).set_index("step").sort_index()
    if beta and "rewards/chosen" in rows:
        both = rows[["rewards/chosen", "rewards/rejected"]].astype(float)
        rows["log_ratio"] = both.sum(axis=1, skipna=False) / (2 * beta)
    if "pairable" in rows:
        rows["frac_reward_zero_std"] = 1 - rows["pairable"]
    measures = pd.DataFrame(index=rows.index)
    measures["tokens"] = rows["num_tokens"].ffill().astype(float)
    for measure, names in LOGGED.items():
        logged = [name for name in names if name in rows]
        measures[measure] = rows[logged[0]].astype(float) if logged else float("nan")
    measures["staleness"] = float("nan")
    if consumed is not None and len(consumed):
        measures["staleness"] = (consumed["step"] - consumed["generated_at"]).groupby(consumed["step"]).mean()
    if "replay/staleness" in rows:  # the log counts only sampled rows
        measures["staleness"] = measures["staleness"].fillna(0) + rows["replay/staleness"].astype(float)
    return measures


def binned(steps: pd.DataFrame, bins: int = 20) -> pd.DataFrame:
    n = len(steps)
    stretch = [i * min(bins, n) // n for i in range(n)]
    groups = steps.reset_index().groupby(stretch)
    return pd.concat([groups[["step", "tokens"]].last(), groups[list(MEASURES)].mean()], axis=1)


def collapse(values: pd.Series, share: float) -> dict[str, Any] | None:
    """Test whether a measure fell below `share` of its start: compare the mean over the first stretch of steps
    (`SHARE_OF_STEPS`, at least `FEWEST_STEPS`) with the lowest mean over a later one.

    Returns:
        start, lowest, at_step (the last of the first stretch below the share) and collapsed; None with fewer logged
        steps than two stretches.
    """
    logged = values.dropna()
    width = max(FEWEST_STEPS, ceil(SHARE_OF_STEPS * len(logged)))
    if len(logged) < 2 * width:
        return None
    means = logged.rolling(width).mean().iloc[width - 1 :]
    start, later = float(means.iloc[0]), means.iloc[width:]
    below = later[later < share * start]
    at_step = int(below.index[0]) if len(below) else None
    return {"start": start, "lowest": float(later.min()), "at_step": at_step, "collapsed": at_step is not None}
