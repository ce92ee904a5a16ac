"""Measures of online trainings by step, from the trainer's log and its rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
RATIO_BOUND = 0.1  # distance of a training's mean ratio from 1 that the page warns of


def steps_of(
    log: Sequence[Mapping[str, object]], consumed: pd.DataFrame | None = None, beta: float | None = None
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
    return measures


def binned(steps: pd.DataFrame, bins: int = 20) -> pd.DataFrame:
    n = len(steps)
    stretch = [i * min(bins, n) // n for i in range(n)]
    groups = steps.reset_index().groupby(stretch)
    return pd.concat([groups[["step", "tokens"]].last(), groups[list(MEASURES)].mean()], axis=1)
