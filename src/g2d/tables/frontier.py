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
from g2d.experiment.sections import Price
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, Grouped, Row, by_grid, by_policy, named
from g2d.tables.families import Paired
from g2d.tables.frames import Rows, columns, table_of

WHERE_KNOWN = ("gpu_energy_kwh", "money")  # axes that a grid need not have
AXES = ("tokens_generated", "updates", "device_hours", "paper_hours", "critical_path_hours", *WHERE_KNOWN)
NOT_TESTED = "not tested"  # on the other axes, and GRPO before its last K and its ablations
FRONTIER_COLUMNS = columns(
    *(BY_BENCHMARK, "axis cost cost_low cost_high cost_without_calibration n_seeds accuracy ci_low ci_high"),
    "status beaten_by beaten_by_K beaten_by_group_size beaten beaten_low beaten_high p_on p_beaten",
    "behind_any margin_shown_any margin p_enough enough cheapest_enough",
)


@table_of(FRONTIER_COLUMNS, where_known=columns("currency"))
def frontier_table(
    evaluations: Evaluations,
    costs: Mapping[PolicyKey, Mapping[str, float]],
    margin: float,
    calibration: Mapping[PolicyKey, Mapping[str, float]] | None = None,
    price: Price | None = None,
    tested_axis: str = "device_hours",
) -> Rows:
    """Costs of every policy that is no ablation of DPO, on each axis that is known for it; its `Standing` on one axis,
    and its `Margin` against any other policy. GRPO before its last K and ablations of GRPO are in no test.

    Args:
        costs: of every trained policy, what `costs_of` says; M0 cost nothing.
        calibration: what of these costs is calibration (`calibration_of`), which every policy and seed is charged.
        tested_axis: `frontier.axis`.
    """
    grouped = _on_the_picture(evaluations)
    for (_, benchmark), own in by_grid(grouped).items():
        tested = [at for at in own if _is_tested(at)]
        differences = Paired(grouped, tested).differences if tested else Differences([])
        margins = dict(zip(tested, smallest_margins(differences, margin), strict=True))
        shown = {at: accuracy_row(grouped[at], {}, benchmark) | _margin(margins.get(at)) for at in own}
        for axis in AXES:
            spent = {at: _costs(grouped[at], costs, axis) for at in own}
            known = [at for at in own if np.isfinite(spent[at]).all()]
            if axis in WHERE_KNOWN and all(at[0].role == "base" for at in known):
                continue
            standing: dict[Row, dict[str, Any]] = {}
            if axis == tested_axis and tested:
                found = on_axis([spent[at] for at in tested], differences, [margins[at].enough for at in tested])
                names = [named(grouped[at], benchmark) for at in tested]
                standing = {at: _standing(one, names) for at, one in zip(tested, found, strict=True)}
            for at in known:
                row = shown[at] | {"axis": axis, "margin": margin, "cost": spent[at].mean()}
                if calibration is not None:
                    shared = [calibration.get(key, {}).get(axis, 0.0) for key in grouped[at]]
                    row["cost_without_calibration"] = row["cost"] - math.fsum(shared) / len(shared)
                if len(spent[at]) > 1:
                    low, high = cost_interval(spent[at])
                    row |= {"cost_low": max(low, 0.0), "cost_high": high}
                if axis == "money" and price is not None:
                    row["currency"] = price.currency
                yield row | standing.get(at, {"status": NOT_TESTED, "cheapest_enough": False})


def _is_tested(at: Row) -> bool:
    return at[0].role not in ("curve", "ablation")


def _margin(found: Margin | None) -> dict[str, Any]:
    if found is None:
        return {"enough": False}
    shown = {"behind_any": found.behind, "margin_shown_any": found.margin_shown}
    return shown | {"p_enough": found.p_enough, "enough": found.enough}


def _standing(found: Standing, names: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Cells of a row; the names are those of the tested policies."""
    by = {} if found.beaten_by is None else names[found.beaten_by]
    beaten_by = {
        "beaten_by": by.get("policy"),
        "beaten_by_K": by.get("K"),
        "beaten_by_group_size": by.get("group_size"),
    }
    return asdict(found) | beaten_by


def _on_the_picture(evaluations: Evaluations) -> Grouped:
    return by_policy(evaluations, keep=lambda key: not key.is_ablation or key.kind == "grpo")


def _costs(by_key: Mapping[PolicyKey, Any], costs: Mapping[PolicyKey, Mapping[str, float]], axis: str) -> np.ndarray:
    """Of every seed; M0 cost nothing."""
    return np.array([costs[key].get(axis, math.nan) if key in costs else 0.0 for key in by_key])
