"""Advice on levels and K from calibration and probe."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import scipy

from g2d.analysis.informativeness import binary_entropy, in_mid_band, informative_parts, pairable
from g2d.analysis.statistics import (
    RESAMPLES,
    part_interval,
    percentile_interval,
    resample,
    shrunk_together,
    standard_error,
    wilson_interval,
)
from g2d.experiment.keys import HarvestKey
from g2d.tables.frames import Rows, columns, estimate, table_of

LEVEL_COLUMNS = columns(
    "model levels selected in_window n pass_at_1 pairability pairability_low pairability_high pairs_per_100",
    "all_wrong_share",
)
METRICS = ("pairability", "n_pairs", "entropy", "mid_band")
STEP_COLUMNS = columns(
    *("model group_size K n_probed n_prompts", *(f"{name} {name}_low {name}_high" for name in METRICS)),
    "p_best_entropy p_best_mid_band behind_advised behind_advised_low behind_advised_high as_good advised",
)


@table_of(LEVEL_COLUMNS)
def level_advice(model: str, table: pd.DataFrame, window: tuple[float, float]) -> Rows:
    """Estimate pairs of M0 on every level, and which levels are in the window of pass@1 (inclusive).

    pairability (rho) has Wilson's interval over the calibrated problems.
    """
    for row in table.to_dict("records"):
        share = row["pairable_share"]
        yield {
            "model": model,
            **{name: row[name] for name in ("levels", "selected", "n", "pass_at_1", "all_wrong_share")},
            "in_window": bool(window[0] <= row["pass_at_1"] <= window[1]),
            **estimate("pairability", share, wilson_interval(int(row["pairable"]), int(row["n"]))),
            "pairs_per_100": 100 * share,
        }


@table_of(STEP_COLUMNS)
def step_advice(counts: Mapping[HarvestKey, pd.DataFrame], n_prompts: int) -> Rows:
    """Estimate the informativeness of the whole harvest of every K, and which K most likely has the highest H.

    Args:
        counts: success counts of the same probed prompts at every (G, K) of one model and seed.
        n_prompts: size of the training set; the probed prompts are a random part of it.

    Returns:
        `STEP_COLUMNS`, one row per (G, K) by ascending K, with 95 % intervals for all n_prompts. p_best_*: probability
            that K has the highest value, from resamples of the prompts, the same at every K. advised: the K with the
            highest p_best_entropy; ties are broken by H, then by the smaller K. behind_advised: H of the advised K
            minus H; as_good: its interval contains 0.

    Raises:
        ValueError: the probes have different prompts, or more than n_prompts.
    """
    keys = sorted(counts, key=lambda key: (key.k, key.group_size))
    if not keys:
        return
    ordered = {key: counts[key].sort_values("problem_id", ignore_index=True) for key in keys}
    first = ordered[keys[0]]["problem_id"]
    for key, probed in ordered.items():
        if not probed["problem_id"].equals(first):
            raise ValueError(f"{key.probe_folder}: not the prompts of {keys[0].probe_folder}: delete both probes")
    if len(first) > n_prompts:
        raise ValueError(f"{keys[0].probe_folder}: {len(first)} prompts of a training set of {n_prompts}: delete it")
    unseen = math.sqrt(1 - len(first) / n_prompts)
    resampled = {
        metric: np.stack([_resampled(ordered[key], metric, unseen) for key in keys])
        for metric in ("entropy", "mid_band")
    }
    chances = {metric: _chance_of_being_best(values) for metric, values in resampled.items()}
    entropies = [_entropy(probed) for probed in ordered.values()]
    ranks = [(round(chance, 12), round(entropies[i], 12), -i) for i, chance in enumerate(chances["entropy"])]
    best = -max(ranks)[2] if chances["entropy"].any() else None
    for i, key in enumerate(keys):
        difference: dict[str, float | None] = {"as_good": False}
        if best is not None and math.isfinite(entropies[i]):
            low, high = percentile_interval(resampled["entropy"][best] - resampled["entropy"][i])
            difference = estimate("behind_advised", entropies[best] - entropies[i], (low, high))
            difference["as_good"] = low <= 0 <= high
        yield {
            "model": key.model,
            "group_size": key.group_size or None,
            "K": key.k,
            "n_probed": len(first),
            "n_prompts": n_prompts,
            **_estimates(ordered[key], n_prompts),
            "p_best_entropy": chances["entropy"][i],
            "p_best_mid_band": chances["mid_band"][i],
            "advised": i == best,
            **difference,
        }


def _estimates(counts: pd.DataFrame, n_prompts: int) -> dict[str, float | None]:
    n, candidates = len(counts), counts[pairable(counts)]
    low, high = part_interval(len(candidates), n, n_prompts)
    share = len(candidates) / n
    estimates = estimate("pairability", share, (low, high))
    estimates |= estimate("n_pairs", share * n_prompts, (low * n_prompts, high * n_prompts))
    if candidates.empty:
        return estimates
    entropies = binary_entropy(candidates["p_hat"].to_numpy())
    mean = float(entropies.mean())
    ends: tuple[float | None, float | None] = (None, None)
    if len(candidates) > 1:
        # Student's t; a share n / N of the pairable prompts was probed (Cochran 1977, eq. 2.20).
        error = (standard_error(entropies) or 0.0) * math.sqrt(1 - n / n_prompts)
        reach = float(scipy.stats.t.ppf(0.975, len(candidates) - 1)) * error
        ends = max(0.0, mean - reach), min(1.0, mean + reach)
    middle = int(in_mid_band(candidates).sum())
    of_middle = part_interval(middle, len(candidates), round(len(candidates) * n_prompts / n))
    return estimates | estimate("entropy", mean, ends) | estimate("mid_band", middle / len(candidates), of_middle)


def _entropy(counts: pd.DataFrame) -> float:
    total, n = (float(part.sum()) for part in informative_parts(counts)["entropy"])
    return total / n if n else math.nan


def _resampled(counts: pd.DataFrame, metric: str, unseen: float) -> np.ndarray:
    """Return the ratio over the whole harvest, shape (resamples,); NaN if a resample has no pairable prompt.

    Only unprobed prompts are uncertain, so deviations shrink by sqrt(1 - n/N). The resamples are the same at every K,
    so comparisons of K are paired.
    """
    values, weights = informative_parts(counts)[metric]
    center = float(values.sum() / weights.sum()) if weights.any() else math.nan
    if not unseen or math.isnan(center):
        return np.full(RESAMPLES, center)
    return center + unseen * (resample(values[None], weights[None]) - center)


def _chance_of_being_best(values: np.ndarray) -> np.ndarray:
    """Return the probability of each row of values (rows, resamples) to be the highest; ties share it.

    Shrinking (`shrunk_together`) makes rows that differ only by noise equally probable.
    """
    possible = np.isfinite(values).any(axis=1)
    chances = np.zeros(len(values))
    if not possible.any():
        return chances
    rows = values[possible]
    shrunk = shrunk_together(rows)
    # Equal values from different sums differ in the last bit.
    shrunk = np.where(np.isfinite(rows), shrunk, -np.inf).round(12)
    best = (shrunk == shrunk.max(axis=0)) & np.isfinite(shrunk)
    chances[possible] = (best / np.maximum(best.sum(axis=0), 1)).mean(axis=1)
    return chances


def single_levels(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["levels"].map(lambda label: label.isdigit() or label == "none")]
