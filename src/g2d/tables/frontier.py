"""Accuracy against each measure of cost, and the Pareto frontier on one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from g2d.analysis.frontier import Standing, cost_interval, on_axis
from g2d.analysis.margins import Differences, Margin, smallest_margins
from g2d.experiment.keys import PolicyKey
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, Row, by_grid, by_policy, named
from g2d.tables.families import Paired
from g2d.tables.frames import Rows, columns, table_of

AXES = ("tokens_generated", "updates", "device_hours", "paper_hours", "critical_path_hours")
NOT_TESTED = "not tested"
FRONTIER_COLUMNS = columns(
    *(BY_BENCHMARK, "axis cost cost_low cost_high cost_without_calibration n_seeds accuracy ci_low ci_high"),
    "status beaten_by beaten_by_K beaten_by_group_size beaten beaten_low beaten_high p_on p_beaten",
    "behind_any margin_shown_any margin p_enough enough cheapest_enough",
)


@table_of(FRONTIER_COLUMNS)
def frontier_table(
    evaluations: Evaluations,
    costs: Mapping[PolicyKey, Mapping[str, float]],
    margin: float,
    calibration: Mapping[PolicyKey, Mapping[str, float]] | None = None,
    tested_axis: str = "device_hours",
) -> Rows:
    """A row per policy and axis on which its cost is known, without ablations of DPO.

    Args:
        costs: `costs_of` each trained policy; M0 costs nothing.
        calibration: calibration's part of these costs.
    """
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation or key.kind == "grpo")
    for (_, benchmark), policies in by_grid(grouped).items():
        tested = [at for at in policies if at[0].role not in ("curve", "ablation")]
        differences = Paired(grouped, tested).differences if tested else Differences([])
        margins = dict(zip(tested, smallest_margins(differences, margin), strict=True))
        accuracies = {at: accuracy_row(grouped[at], {}, benchmark) | _margin(margins.get(at)) for at in policies}
        for axis in AXES:
            by_seed = {at: _costs(grouped[at], costs, axis) for at in policies}
            on_this_axis = [at for at in policies if np.isfinite(by_seed[at]).all()]
            standing: dict[Row, dict[str, Any]] = {}
            if axis == tested_axis and tested:
                standings = on_axis([by_seed[at] for at in tested], differences, [margins[at].enough for at in tested])
                names = [named(grouped[at], benchmark) for at in tested]
                standing = {at: _standing(one, names) for at, one in zip(tested, standings, strict=True)}
            for at in on_this_axis:
                row = accuracies[at] | {"axis": axis, "margin": margin, "cost": by_seed[at].mean()}
                if calibration is not None:
                    shared = [calibration.get(key, {}).get(axis, 0.0) for key in grouped[at]]
                    row["cost_without_calibration"] = row["cost"] - math.fsum(shared) / len(shared)
                if len(by_seed[at]) > 1:
                    low, high = cost_interval(by_seed[at])
                    row |= {"cost_low": max(low, 0.0), "cost_high": high}
                yield row | standing.get(at, {"status": NOT_TESTED, "cheapest_enough": False})


def _margin(bound: Margin | None) -> dict[str, Any]:
    if bound is None:
        return {"enough": False}
    return asdict(bound) | {"behind_any": bound.behind, "margin_shown_any": bound.margin_shown}


def _standing(standing: Standing, names: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by = {} if standing.beaten_by is None else names[standing.beaten_by]
    beaten_by = {f"beaten_by_{name}": by.get(name) for name in ("K", "group_size")}
    return asdict(standing) | beaten_by | {"beaten_by": by.get("policy")}


def _costs(by_key: Mapping[PolicyKey, Any], costs: Mapping[PolicyKey, Mapping[str, float]], axis: str) -> np.ndarray:
    return np.array([costs[key].get(axis, math.nan) if key in costs else 0.0 for key in by_key])
