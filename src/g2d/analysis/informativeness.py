"""Informativeness of rollouts: pairability rho, middle-band fraction mu, mean binary entropy H (paper, 2.2 and 2.3).

p(x) is the share of rewarded rollouts of a prompt, a multiple of 1/G', so compare only harvests of equal G'. The 95 %
intervals are over prompts, for this harvest: Wilson's for shares, Student's t for H. With scalar rewards there is no
p(x), only prompts with a pair.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import stdev
from typing import Any

import numpy as np
import pandas as pd
import scipy

from g2d.analysis.statistics import wilson_interval
from g2d.rollouts.pairs import is_binary, labels, lengths

PARSEABLE = ("correct", "incorrect")  # verdicts on a terminated box that parses


@dataclass(frozen=True, slots=True)
class Informativeness:
    """Summary of one set of rollouts, with shares in 0..1; a share of nothing is None."""

    n_prompts: int
    n_rollouts: int
    pass_at_1: float | None  # share of right rollouts, mean over prompts: of p(x), where the truth is rewarded
    format_compliance: float | None  # share of rollouts with a terminated box that parses
    truncated_share: float | None  # share of rollouts that used up their token budget
    mean_length: float | None  # tokens per rollout
    pairability: float | None  # rho: share of prompts with 0 < p(x) < 1, or with a pair if the reward is scalar
    pairability_low: float | None
    pairability_high: float | None
    n_pairable: int
    # Not for a scalar reward, because it has no p(x):
    all_wrong: float | None = None  # share of prompts with p(x) = 0
    all_correct: float | None = None  # share of prompts with p(x) = 1
    mid_band: float | None = None  # mu: share of the pairable prompts with 3/8 <= p(x) <= 5/8
    mid_band_low: float | None = None
    mid_band_high: float | None = None
    entropy: float | None = None  # H: mean of H(p(x)) over the pairable prompts, in bits
    entropy_low: float | None = None  # None for fewer than two pairable prompts
    entropy_high: float | None = None
    # Pairs whose chosen or rejected completion used up its budget; None without pairs.
    n_chosen_truncated: int | None = None
    n_rejected_truncated: int | None = None
    # Only for harvests with another reward than correctness:
    mean_reward: float | None = None
    n_not_judged: int | None = None  # rollouts without a finite reward; not in p(x) or pairs
    # Only for a scalar reward:
    mean_length_best: float | None = None  # tokens per rollout that is best of a prompt which has a pair
    mean_length_worst: float | None = None
    n_not_read_whole: int | None = None  # rollouts that were too long for a reward model


def success_counts(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Count the judged (n) and the rewarded (correct) rollouts of every prompt, in order of first appearance.

    Returns:
        problem_id, cluster, level (nullable), n (>= 1), correct, p_hat (correct / n).
    """
    judged = rollouts.assign(_right=rollouts["reward"] == 1).dropna(subset="reward")
    groups = judged.groupby("problem_id", sort=False)
    counts = groups.agg(
        cluster=("cluster", "first"), level=("level", "first"), n=("reward", "size"), correct=("_right", "sum")
    ).reset_index()
    counts = counts.astype({"level": "Int64", "n": "int64", "correct": "int64"})
    return counts.assign(p_hat=counts["correct"] / counts["n"])


def pairable(counts: pd.DataFrame) -> pd.Series:
    """Return which prompts have 0 < p(x) < 1 (section 2.2)."""
    return (counts["correct"] > 0) & (counts["correct"] < counts["n"])


def in_mid_band(counts: pd.DataFrame) -> pd.Series:
    """Return which prompts have 3/8 <= p(x) <= 5/8 (section 2.3), in integers to avoid rounding."""
    eighths = 8 * counts["correct"]
    return (eighths >= 3 * counts["n"]) & (eighths <= 5 * counts["n"])


def binary_entropy(p: np.ndarray) -> np.ndarray:
    """Return H(p) = -p log2 p - (1-p) log2(1-p) in bits, for 0 < p < 1 (section 2.3)."""
    entropy: np.ndarray = -p * np.log2(p) - (1 - p) * np.log2(1 - p)
    return entropy


def informativeness(rollouts: pd.DataFrame) -> Informativeness:
    if not is_binary(rollouts):
        return _measure_scalars(rollouts)
    counts = success_counts(rollouts)
    candidates = counts[pairable(counts)]
    entropies = binary_entropy(candidates["p_hat"].to_numpy())
    entropy_low, entropy_high = _mean_interval(entropies)
    return Informativeness(
        **_without_p(rollouts),
        **_share("pairability", pairable(counts)),
        n_pairable=len(candidates),
        all_wrong=_mean(counts["correct"] == 0),
        all_correct=_mean(counts["correct"] == counts["n"]),
        **_share("mid_band", in_mid_band(candidates)),
        entropy=_mean(entropies),
        entropy_low=entropy_low,
        entropy_high=entropy_high,
    )


def _without_p(rollouts: pd.DataFrame) -> dict[str, Any]:
    right = (rollouts["verdict"] == "correct").groupby(rollouts["problem_id"], sort=False).mean()
    metrics = {
        "n_prompts": len(right),
        "n_rollouts": len(rollouts),
        "pass_at_1": _mean(right),
        "format_compliance": _mean(rollouts["verdict"].isin(PARSEABLE)),
        "truncated_share": _mean(rollouts["finish_reason"] == "length"),
        "mean_length": _mean(rollouts["token_count"]),
    }
    if "reward_status" in rollouts and rollouts["reward_status"].notna().any():
        missing = rollouts["reward"].isna()
        metrics |= {"mean_reward": _mean(rollouts["reward"][~missing]), "n_not_judged": int(missing.sum())}
    return metrics


def _measure_scalars(rollouts: pd.DataFrame) -> Informativeness:
    sides = labels(rollouts).groupby(rollouts["problem_id"], sort=False).agg(["any", "size"])
    has_pair = sides["any"].astype(bool)
    best, worst = lengths(rollouts)
    details = rollouts.get("reward_details", pd.Series(dtype="object")).dropna()  # JSON
    cut = sum(bool(json.loads(text).get("truncated")) for text in details)
    return Informativeness(
        **_without_p(rollouts),
        **_share("pairability", has_pair),
        n_pairable=int(has_pair.sum()),
        mean_length_best=best,
        mean_length_worst=worst,
        n_not_read_whole=cut,
    )


def informative_parts(counts: pd.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return rho, H and mu as ratios of sums over prompts: the terms of numerator and denominator by metric."""
    ones = np.ones(len(counts))
    candidates = pairable(counts).to_numpy(dtype=float)
    entropies = np.zeros(len(counts))
    entropies[candidates > 0] = binary_entropy(counts["p_hat"].to_numpy()[candidates > 0])
    middle = candidates * in_mid_band(counts).to_numpy()
    return {"pairability": (candidates, ones), "entropy": (entropies, candidates), "mid_band": (middle, candidates)}


def _share(name: str, hits: pd.Series) -> dict[str, Any]:
    low, high = wilson_interval(int(hits.sum()), len(hits)) if len(hits) else (None, None)
    return {name: _mean(hits), f"{name}_low": low, f"{name}_high": high}


def _mean_interval(values: np.ndarray) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return None, None
    error = stdev(map(float, values)) / math.sqrt(len(values))
    reach = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    center = math.fsum(values) / len(values)
    return max(0.0, center - reach), min(1.0, center + reach)


def _mean(values: Iterable[float]) -> float | None:
    """Return the mean; None without values. The order of the rows does not matter, because `fsum` rounds once."""
    values = list(values)
    return math.fsum(values) / len(values) if values else None
