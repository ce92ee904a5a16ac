"""The advice compared with the finished grid (advice_check.csv)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict
from math import fsum
from typing import Any

import numpy as np
import pandas as pd

from g2d.advice.probe import METRICS
from g2d.analysis.comparisons import compare
from g2d.analysis.crossed import SeedPool
from g2d.analysis.informativeness import Informativeness
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.forecast.devices import CARD, device_of
from g2d.jobs.cost import Cost
from g2d.tables.evaluations import clusters_of, crossed
from g2d.tables.frames import Rows, columns, mean, table_of

CHECK_COLUMNS = columns(
    "model group_size K metric predicted low high found inside width mean_over_seeds seeds_inside note",
    K="Int64",
    inside="boolean",
)
Point = tuple[int, int]  # group size and K
Values = Mapping[Point, float]
FOUND_AS = {"n_pairs": "n_pairable"}  # attributes of `Informativeness` that have another name


@table_of(CHECK_COLUMNS)
def harvest_check(steps: pd.DataFrame, summaries: Mapping[HarvestKey, Informativeness], seed: int) -> Rows:
    """Compare the probe's predictions with the whole harvest of its seed.

    Intervals and width are for the probed seed, not for mean_over_seeds. The row best_K_by_entropy compares the K of
    the highest H (`_best`). `steps` is advice.csv of all models.
    """
    for step in steps.to_dict("records"):
        at = step["model"], *_point(step)
        seeds = {key.seed: asdict(summary) for key, summary in summaries.items() if _at(key) == at}
        for metric in METRICS:
            value_by_seed = {s: values[FOUND_AS.get(metric, metric)] for s, values in seeds.items()}
            predicted, low, high = (step[f"{metric}{end}"] for end in ("", "_low", "_high"))
            yield {
                **_place(step),
                **{"metric": metric, "predicted": predicted, "low": low, "high": high, "width": high - low},
                **{"found": value_by_seed[seed], "inside": _inside(value_by_seed[seed], low, high)},
                "mean_over_seeds": mean(value_by_seed.values()),
                "seeds_inside": mean(_inside(value, low, high) for value in value_by_seed.values()),
            }
    for model in dict.fromkeys(steps["model"]):
        model_steps = steps[steps["model"] == model]
        by_seed: dict[int, dict[Point, float]] = {}
        for key, summary in summaries.items():
            if key.model == model and summary.entropy is not None:
                by_seed.setdefault(key.seed, {})[key.group_size, key.k] = summary.entropy
        if model_steps["advised"].any() and seed in by_seed:
            chance = model_steps.loc[model_steps["as_good"], "p_best_entropy"].sum()
            row = _best(model_steps, by_seed[seed], by_seed.values())
            yield row | {"metric": "best_K_by_entropy", "note": f"{row['note']}, chance {chance:.2f}"}


def _best(steps: pd.DataFrame, found: Values, by_seed: Iterable[Values]) -> dict[str, Any]:
    """Compare the best K with the set of K that the probe could not distinguish from the advised one (`as_good`).

    low, high and width are the set's smallest and largest K and its size; seeds_inside is the share of seeds whose best
    K is in it.
    """
    advised, best = _place(steps[steps["advised"]].iloc[0]), _highest(found)
    points = {_point(row) for row in steps[steps["as_good"]].to_dict("records")}
    return advised | {
        "predicted": advised["K"],
        "low": min(k for _, k in points),
        "high": max(k for _, k in points),
        "width": len(points),
        "found": best[1],
        "inside": best in points,
        "seeds_inside": mean(_highest(values) in points for values in by_seed),
        "note": f"{len(points)} of {len(steps)} K",
    }


def _highest(values: Values) -> Point:
    return max(sorted(values, key=lambda point: (point[1], point[0])), key=lambda point: values[point])


@table_of(CHECK_COLUMNS)
def accuracy_check(steps: pd.DataFrame, answers: Mapping[PolicyKey, pd.DataFrame], benchmark: str) -> Rows:
    """Compare the policy of the advised K with the most accurate one, over all seeds.

    found is its accuracy minus the best K's, with a 95 % interval over seeds and questions, corrected for choosing the
    best K. It is too large on average: the best K is chosen on the same answers.
    """
    for model in dict.fromkeys(steps["model"]):
        advised = steps[(steps["model"] == model) & steps["advised"]]
        points = {(key.group_size, key.k): None for key in answers if key.model == model}
        if advised.empty or not points:
            continue
        right = {
            point: crossed({key: answers[key] for key in sorted(answers) if _at(key) == (model, *point)}, benchmark)
            for point in points
        }
        means = {point: float(values.mean()) for point, values in right.items()}
        best = _highest(means)
        chosen, accuracies = _point(advised.iloc[0]), np.stack([values.mean(axis=1) for values in right.values()])
        pool = SeedPool.without_unstable(accuracies, [[*right].index(point) for point in (chosen, best)])
        others = max(len(right) - 1, 1)
        compared = compare(right[chosen], right[best], pool, others, clusters_of(answers))
        low, high = compared.family_low, compared.family_high
        yield {
            **_place(advised.iloc[0]),
            **{"metric": "accuracy_minus_best_K", "predicted": 0.0, "low": low, "high": high},
            **{"found": compared.difference, "inside": _inside(0.0, low, high)},
            "note": f"best K={best[1]} on {benchmark}; low and high are for what was found",
        }
        seeds = [
            {point: float(values[i].mean()) for point, values in right.items()} for i in range(accuracies.shape[1])
        ]
        yield _best(steps[steps["model"] == model], means, seeds) | {"metric": "best_K_by_accuracy"}


@table_of(CHECK_COLUMNS)
def hours_check(hours: pd.DataFrame, before: Iterable[Cost], costs: Iterable[Cost]) -> Rows:
    """Compare the predicted device-hours with the costs of the finished grid, by stage.

    Costs `before` the advice are left out; their device decides between GPU-hours and CPU hours.
    """
    before = [*before]
    device = device_of(before[0]) if before else CARD
    done = {record.job for record in before}
    left = {record.job: record for record in costs if record.job not in done}
    for row in hours[(hours["scope"] == "grid") & (hours["n_jobs"] > 0)].to_dict("records"):
        jobs = (r for r in left.values() if r.stage == row["stage"] and f"/{row['model']}/" in f"/{r.job}")
        common = {"model": row["model"], "predicted": row["device_hours"], "note": row["source"]}
        yield common | {"metric": f"device_hours_{row['stage']}", "found": fsum(map(device.hours, jobs))}


def _place(row: Mapping[Hashable, Any] | pd.Series) -> dict[str, Any]:
    group_size, k = _point(row)
    return {"model": row["model"], "group_size": group_size or None, "K": k}


def _point(row: Mapping[Hashable, Any] | pd.Series) -> Point:
    return 0 if pd.isna(row["group_size"]) else int(row["group_size"]), int(row["K"])


def _at(key: PolicyKey | HarvestKey) -> tuple[str, int, int]:
    return key.model, key.group_size, key.k


def _inside(value: float | None, low: float | None, high: float | None) -> bool | None:
    if value is None or pd.isna(low) or pd.isna(high):
        return None
    slack = 1e-5  # tables have six digits
    return bool(low - slack * max(1, abs(low)) <= value <= high + slack * max(1, abs(high)))
