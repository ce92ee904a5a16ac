"""Informativeness of harvests (Table 2), and difficulty of levels (Table 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
import scipy

from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.analysis.informativeness import Informativeness, informative_parts, success_counts
from g2d.analysis.statistics import mean_interval, standard_deviation
from g2d.grid.runs import Harvest
from g2d.tables.evaluations import Evaluations
from g2d.tables.frames import Rows, columns, interval, table_of

CORRELATED_METRICS = ("pairability", "entropy", "mid_band")
HARVEST_METRICS = {  # column: attribute of Informativeness
    "harvest_pass_at_1": "pass_at_1",
    "pairability": "pairability",
    "n_pairs": "n_pairable",
    "entropy": "entropy",
    "mid_band": "mid_band",
    "format_compliance": "format_compliance",
    "truncated_share": "truncated_share",
    "n_chosen_truncated": "n_chosen_truncated",
    "n_rejected_truncated": "n_rejected_truncated",
    "mean_length": "mean_length",
    "mean_reward": "mean_reward",
    "n_not_judged": "n_not_judged",
    "mean_length_best": "mean_length_best",
    "mean_length_worst": "mean_length_worst",
    "n_not_read_whole": "n_not_read_whole",
}
HARVEST_COLUMNS = columns(
    "model group_size K n_seeds",
    *HARVEST_METRICS,
    *(f"{metric}_std" for metric in HARVEST_METRICS),
    *(f"{metric}_low {metric}_high" for metric in CORRELATED_METRICS),
)
POINT_COLUMNS = columns("model group_size K seed benchmark accuracy", *CORRELATED_METRICS)
CORRELATION_COLUMNS = columns("model benchmark metric n pearson_r")
FEWEST_CORRELATED = 3  # harvests: two are always on a line


@table_of(HARVEST_COLUMNS)
def harvest_table(harvests: Mapping[Harvest, Informativeness], counts: Mapping[Harvest, pd.DataFrame]) -> Rows:
    """Table 2: a row per harvest, mean and sample standard deviation over the seeds in which a metric is not null.

    Intervals are over the prompts that have a reward in all seeds. Scalar rewards have none.

    Raises:
        ValueError: seeds harvested different prompts.
    """
    models = list(dict.fromkeys(harvest.model for harvest in harvests))

    def position(harvest: Harvest) -> tuple[int, int, int, int]:
        return models.index(harvest.model), harvest.group_size, harvest.k, harvest.seed

    groups: dict[tuple[str, int, int], list[Harvest]] = {}
    for harvest in sorted(harvests, key=position):
        groups.setdefault((harvest.model, harvest.group_size, harvest.k), []).append(harvest)
    for (model, group_size, k), seeds in groups.items():
        if len({harvests[harvest].n_prompts for harvest in seeds}) > 1:
            raise ValueError(
                f"{seeds[0].folder}: the seeds of this policy harvested different prompts: harvest them again"
            )
        row: dict[str, object] = {"model": model, "group_size": group_size or None, "K": k, "n_seeds": len(seeds)}
        for metric, attribute in HARVEST_METRICS.items():
            by_seed = pd.Series([getattr(harvests[harvest], attribute) for harvest in seeds], dtype=float).dropna()
            row[metric] = by_seed.mean()
            row[f"{metric}_std"] = standard_deviation(by_seed.to_numpy())
        if all(harvests[harvest].all_wrong is not None for harvest in seeds):  # the rewards are binary
            row.update(_harvest_intervals([counts[harvest] for harvest in seeds]))
        yield row


def _harvest_intervals(counts: Sequence[pd.DataFrame]) -> dict[str, float | None]:
    judged = set.intersection(*(set(frame["problem_id"]) for frame in counts))
    of_judged = []
    for frame in counts:
        of_judged.append(frame[frame["problem_id"].isin(judged)].sort_values("problem_id", kind="stable"))
    parts = [informative_parts(frame) for frame in of_judged]
    clusters = of_judged[0]["cluster"].to_numpy()
    values: dict[str, float | None] = {}
    for metric in CORRELATED_METRICS:
        numerators = []
        denominators = []
        for part in parts:
            numerator, denominator = part[metric]
            if denominator.any():
                numerators.append(numerator)
                denominators.append(denominator)
        if numerators:
            low, high = mean_interval(np.stack(numerators), np.stack(denominators), clusters)
            values |= interval(metric, (max(low, 0.0), min(high, 1.0)))
    return values


@table_of(POINT_COLUMNS)
def correlation_points(harvests: Mapping[Harvest, Informativeness], evaluations: Evaluations) -> Rows:
    """A row per harvest and benchmark, with the accuracy of DPO on it; group_size is 0 for K=0."""
    for (policy, benchmark), answers in evaluations.items():
        if policy.role != "dpo" or policy.seed is None:
            continue
        harvest = Harvest(policy.model, policy.group_size, policy.k, policy.seed)
        if harvest in harvests:
            row = asdict(harvests[harvest])
            row.update(asdict(harvest))
            row["K"] = harvest.k
            row["benchmark"] = benchmark
            row["accuracy"] = float(answers.groupby("problem_id")["reward"].mean().mean())
            yield row


@table_of(CORRELATION_COLUMNS)
def correlation_table(points: pd.DataFrame) -> Rows:
    """A row per model, benchmark and metric: its correlation with accuracy over the K (last row of Table 2)."""
    for (model, benchmark), group in points.groupby(["model", "benchmark"], sort=False):
        averaged = group.groupby(["group_size", "K"])[["accuracy", *CORRELATED_METRICS]].mean()
        for metric in CORRELATED_METRICS:
            both = averaged[[metric, "accuracy"]].dropna()
            r = None
            if len(both) >= FEWEST_CORRELATED and (both.max() - both.min() > 1e-12).all():
                r = scipy.stats.pearsonr(both[metric], both["accuracy"]).statistic
            yield {"model": model, "benchmark": benchmark, "metric": metric, "n": len(both), "pearson_r": r}


CALIBRATION_COLUMNS = columns("model") | LEVEL_COLUMNS


@table_of(CALIBRATION_COLUMNS)
def calibration_table(tables: Mapping[str, pd.DataFrame]) -> Rows:
    for model, levels in tables.items():
        for level in levels.to_dict("records"):
            yield {"model": model} | level


CELL_METRICS = ("pass_at_1", *CORRELATED_METRICS)
CELL_COLUMNS = columns("model level temperature n", *CELL_METRICS, "all_wrong all_correct")


@table_of(CELL_COLUMNS)
def factorial_table(rollouts: Mapping[str, Mapping[float, pd.DataFrame]]) -> Rows:
    """A row per model, level and temperature, without problems that have no level."""
    for model, by_temperature in rollouts.items():
        counts: dict[float, pd.DataFrame] = {}
        levels: set[int] = set()
        for temperature in sorted(by_temperature):
            frame = success_counts(by_temperature[temperature])
            counts[temperature] = frame
            levels.update(int(level) for level in frame["level"].dropna())
        for level in sorted(levels):
            for temperature, frame in counts.items():
                row = {"model": model, "level": level, "temperature": temperature}
                row.update(_cell(frame[frame["level"] == level]))
                yield row


def _cell(counts: pd.DataFrame) -> dict[str, float | None]:
    cell: dict[str, float | None] = {"n": len(counts), "pass_at_1": counts["p_hat"].mean()}
    for metric, (numerators, denominators) in informative_parts(counts).items():
        cell[metric] = None
        if denominators.any():
            cell[metric] = numerators.sum() / denominators.sum()
    cell["all_wrong"] = (counts["correct"] == 0).mean()
    cell["all_correct"] = (counts["correct"] == counts["n"]).mean()
    return cell
