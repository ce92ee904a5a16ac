"""Informativeness of harvests (Table 2), difficulty of levels (Table 4), probes of automatic warm-ups."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.analysis.correlations import permutation_p, ranks_within, within_correlation
from g2d.analysis.factorial import METRICS, factorial_cells
from g2d.analysis.informativeness import Informativeness, informative_parts
from g2d.analysis.statistics import mean_interval, standard_deviation
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.regimes.run.auto_stop import PROBE_COLUMNS
from g2d.tables.evaluations import Evaluations
from g2d.tables.frames import Rows, columns, interval, mean, table_of

CORRELATED_METRICS = ("pairability", "entropy", "mid_band")
HARVEST_METRICS = {  # column: attribute of Informativeness
    **{"harvest_pass_at_1": "pass_at_1", "pairability": "pairability", "n_pairs": "n_pairable"},
    **{name: name for name in ("entropy", "mid_band", "entropy_corrected", "mid_band_corrected")},
    **{name: name for name in ("format_compliance", "truncated_share", "n_chosen_truncated", "n_rejected_truncated")},
    "mean_length": "mean_length",
}
HARVEST_COLUMNS = columns(
    *("model group_size K n_seeds", *HARVEST_METRICS, *(f"{metric}_std" for metric in HARVEST_METRICS)),
    *(f"{metric}_low {metric}_high" for metric in CORRELATED_METRICS),
)
POINT_COLUMNS = columns("model group_size K seed benchmark accuracy", *CORRELATED_METRICS)
CORRELATION_COLUMNS = columns("model benchmark metric pooling n pearson_r ci_low ci_high permutation_p spearman_rho")
FEWEST_TESTED = 5  # harvests: with four, no order of K has a two-sided p below 8 %
AUTO_COLUMNS = columns("model group_size seed") | PROBE_COLUMNS


@table_of(HARVEST_COLUMNS)
def harvest_table(harvests: Mapping[HarvestKey, Informativeness], counts: Mapping[HarvestKey, pd.DataFrame]) -> Rows:
    """Table 2: a row per harvest, mean and sample standard deviation over the seeds in which a metric is not null;
    ValueError if seeds harvested different prompts."""
    models = list(dict.fromkeys(key.model for key in harvests))
    groups: dict[tuple[str, int, int], list[HarvestKey]] = {}
    for key in sorted(harvests, key=lambda key: (models.index(key.model), key.group_size, key.k, key.seed)):
        groups.setdefault((key.model, key.group_size, key.k), []).append(key)
    for (model, group_size, k), keys in groups.items():
        seeds = [harvests[key] for key in keys]
        row: dict[str, Any] = {"model": model, "group_size": group_size or None, "K": k, "n_seeds": len(seeds)}
        for metric, attribute in HARVEST_METRICS.items():
            values = [value for seed in seeds if (value := getattr(seed, attribute)) is not None]
            row |= {metric: mean(values), f"{metric}_std": standard_deviation(values)}
        yield row | _harvest_intervals([counts[key] for key in keys], keys[0].folder)


def _harvest_intervals(counts: Sequence[pd.DataFrame], folder: str) -> dict[str, float | None]:
    ordered = [frame.sort_values("problem_id", kind="stable") for frame in counts]
    if any(list(frame["problem_id"]) != list(ordered[0]["problem_id"]) for frame in ordered):
        raise ValueError(f"{folder}: the seeds of this policy harvested different prompts: harvest them again")
    parts = [informative_parts(frame) for frame in ordered]
    values: dict[str, float | None] = {}
    for metric in CORRELATED_METRICS:
        if ratios := [part[metric] for part in parts if part[metric][1].any()]:
            numerators, denominators = (np.stack(side) for side in zip(*ratios, strict=True))
            low, high = mean_interval(numerators, denominators)
            values |= interval(metric, (max(low, 0.0), min(high, 1.0)))
    return values


@table_of(POINT_COLUMNS)
def correlation_points(harvests: Mapping[HarvestKey, Informativeness], evaluations: Evaluations) -> Rows:
    """A row per harvest and benchmark, with the accuracy of DPO on it; group_size is 0 for K=0."""
    for (policy, benchmark), answers in evaluations.items():
        key = HarvestKey(policy.model, policy.group_size, policy.k, policy.seed if policy.seed is not None else -1)
        if policy.role == "dpo" and key in harvests:
            accuracy = float(answers.groupby("problem_id")["reward"].mean().mean())
            yield asdict(harvests[key]) | asdict(key) | {"K": key.k, "benchmark": benchmark, "accuracy": accuracy}


@table_of(CORRELATION_COLUMNS)
def correlation_table(points: pd.DataFrame) -> Rows:
    """A row per model (or "all"), benchmark, metric and pooling: correlation with accuracy (last row of Table 2)."""
    for (model, benchmark), group in points.groupby(["model", "benchmark"], sort=False):
        averaged = group.groupby(["group_size", "K"], as_index=False)[["accuracy", *CORRELATED_METRICS]].mean()
        yield from _correlations(averaged.assign(model=str(model), seed=0), model, benchmark, "means over seeds")
        if group["seed"].nunique() > 1:
            yield from _correlations(group, model, benchmark, "within seeds")
    if points["model"].nunique() > 1:
        for benchmark, group in points.groupby("benchmark", sort=False):
            yield from _correlations(group, "all", benchmark, "within seeds and models")


def _correlations(points: pd.DataFrame, model: Hashable, benchmark: Hashable, pooling: str) -> Rows:
    for metric in CORRELATED_METRICS:
        defined = points.dropna(subset=[metric])
        subjects = defined.groupby(["model", "seed"]).ngroup().to_numpy()
        x, y = defined[metric].to_numpy(), defined["accuracy"].to_numpy()
        correlation = within_correlation(x, y, subjects)
        n_harvests = len(defined[["model", "group_size", "K"]].drop_duplicates())
        tested = n_harvests >= FEWEST_TESTED and correlation.r is not None
        ranked = within_correlation(ranks_within(x, subjects), ranks_within(y, subjects), subjects)
        yield {
            **{"model": model, "benchmark": benchmark, "metric": metric, "pooling": pooling, "n": correlation.n},
            **{"pearson_r": correlation.r, "ci_low": correlation.low, "ci_high": correlation.high},
            "permutation_p": permutation_p(defined, metric, "accuracy") if tested else None,
            "spearman_rho": ranked.r,
        }


@table_of(AUTO_COLUMNS)
def auto_table(probes: Mapping[PolicyKey, pd.DataFrame]) -> Rows:
    """A row per automatic warm-up, seed and probe; H and mu are null if no prompt was pairable."""
    models = list(dict.fromkeys(key.model for key in probes))
    for key in sorted(probes, key=lambda key: (models.index(key.model), key.group_size, key.seed)):
        names = {"model": key.model, "group_size": key.group_size, "seed": key.seed}
        yield from ({**names, **row} for row in probes[key].to_dict("records"))


CALIBRATION_COLUMNS = columns("model") | LEVEL_COLUMNS


@table_of(CALIBRATION_COLUMNS)
def calibration_table(tables: Mapping[str, pd.DataFrame]) -> Rows:
    yield from ({"model": model, **row} for model, levels in tables.items() for row in levels.to_dict("records"))


CELL_COLUMNS = columns("model level temperature n", *METRICS, "all_wrong all_correct")


@table_of(CELL_COLUMNS)
def factorial_table(rollouts: Mapping[str, Mapping[float, pd.DataFrame]]) -> Rows:
    for model, by_temperature in rollouts.items():
        yield from ({"model": model, **row} for row in factorial_cells(by_temperature))
