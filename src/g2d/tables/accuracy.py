"""Tables 1 and 3: the accuracy and cost of every policy and every ablation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from g2d.analysis.statistics import standard_deviation, standard_error
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import ROW, Evaluations, by_policy, clusters_of, crossed, grid_order, row_of, share
from g2d.tables.frames import Rows, columns, mean, table_of

ACCURACY = f"{ROW} n_seeds n_problems accuracy std_over_seeds standard_error ci_low ci_high device_hours"
MAIN_COLUMNS = columns(ACCURACY, "device_hours_without_calibration")
MEASURED = ("tokens", "n_pairs", "gradient_steps")
ABLATION_COLUMNS = columns(ACCURACY, *MEASURED, "change")


@table_of(MAIN_COLUMNS)
def main_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    calibration: Mapping[PolicyKey, Mapping[str, float]] | None = None,
) -> Rows:
    """Table 1: a row per policy and benchmark, without ablations; K of g2d-auto is the rounded mean over seeds.

    Args:
        calibration: calibration's part of the costs.
    """
    shared = {key: parts["device_hours"] for key, parts in (calibration or {}).items()}
    rest = {key: hours - shared.get(key, 0.0) for key, hours in device_hours.items()}
    for (_, benchmark), by_key in by_policy(evaluations, keep=lambda key: not key.is_ablation).items():
        without = mean(rest.get(key) for key in by_key)
        yield accuracy_row(by_key, device_hours, benchmark) | {"device_hours_without_calibration": without}


@table_of(ABLATION_COLUMNS)
def ablation_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    descriptions: Mapping[str, Mapping[str, Any]],
    measured: Mapping[PolicyKey, Mapping[str, float | None]],
) -> Rows:
    """Table 3: each ablation below the policy of the main grid it differs from (`PolicyKey.reference`).

    Args:
        descriptions: changed keys and values by ablation, in the order of the rows.
        measured: `MEASURED` by policy.
    """
    ablated = {key.over_seeds.reference for key, _ in evaluations if key.is_ablation}

    def keep(key: PolicyKey) -> bool:
        return key.role in ("dpo", "grpo", "curve", "ablation") and key.over_seeds.reference in ablated

    grouped = by_policy(evaluations, keep)
    for at in grid_order(grouped, regimes=("dpo", "grpo", *descriptions), k_first=True):
        regime, by_key = at[0].regime, grouped[at]
        changed = ", ".join(f"{name}={value}" for name, value in descriptions.get(regime, {}).items())
        row = accuracy_row(by_key, device_hours, at[1])
        row |= {name: mean(measured.get(key, {}).get(name) for key in by_key) for name in MEASURED}
        yield row | {"change": changed if regime in descriptions else "reference"}


def accuracy_row(
    by_key: Mapping[PolicyKey, pd.DataFrame], device_hours: Mapping[PolicyKey, float], benchmark: str
) -> dict[str, Any]:
    correct = crossed(by_key, benchmark)
    return {
        **row_of(by_key, benchmark, correct),
        **share(correct, clusters=clusters_of(by_key)),
        "std_over_seeds": standard_deviation(correct.mean(axis=1)),
        "standard_error": standard_error(correct.mean(axis=0)),
        "device_hours": mean(device_hours.get(key) for key in by_key),
    }
