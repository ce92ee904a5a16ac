"""Table 1: the accuracy and cost of every policy."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from g2d.analysis.margins import smallest_margins
from g2d.analysis.statistics import standard_deviation
from g2d.grid.runs import Policy
from g2d.tables.evaluations import (
    ROW,
    Evaluations,
    Grouped,
    Row,
    by_grid,
    by_policy,
    crossed,
    row_of,
    share,
)
from g2d.tables.families import Paired
from g2d.tables.frames import Rows, columns, mean, table_of

SPENT = ("tokens_generated", "updates", "n_pairs")
MAIN_COLUMNS = columns(
    f"{ROW} change n_seeds n_problems accuracy ci_low ci_high by_seed std_over_seeds behind margin_shown",
    "device_hours device_hours_without_calibration",
    *SPENT,
)


@table_of(MAIN_COLUMNS)
def main_table(
    evaluations: Evaluations,
    device_hours: Mapping[Policy, float],
    calibration: Mapping[Policy, float] | None = None,
    spent: Mapping[Policy, Mapping[str, float]] | None = None,
    select_by: str | None = None,
) -> Rows:
    """Table 1: a row per policy and benchmark; K of g2d-auto is the rounded mean over seeds.

    Args:
        calibration: calibration's part of the device-hours.
        spent: `SPENT` of each policy.
        select_by: benchmark without tests.
    """
    calibration = calibration or {}
    spent = spent or {}
    without_calibration = {key: hours - calibration.get(key, 0.0) for key, hours in device_hours.items()}
    grouped = by_policy(evaluations)
    bounds = _bounds({at: by_key for at, by_key in grouped.items() if at[1] != select_by})
    for at, by_key in grouped.items():
        row = accuracy_row(by_key, at[1]) | bounds.get(at, {})
        row["device_hours"] = mean(device_hours.get(key) for key in by_key)
        row["device_hours_without_calibration"] = mean(without_calibration.get(key) for key in by_key)
        spent_by_seed = [spent.get(key, {}) for key in by_key]
        for name in SPENT:
            row[name] = mean(of_seed.get(name) for of_seed in spent_by_seed)
        if at[0].run.changes:
            row["change"] = ", ".join(f"{name}={value}" for name, value in at[0].run.changes.items())
        yield row


def _bounds(grouped: Grouped) -> dict[Row, dict[str, float]]:
    """Return how far each K of DPO on a harvest is behind the best other K, with the bound; nothing while some of their
    seeds are missing."""
    bounds: dict[Row, dict[str, float]] = {}
    for rows in by_grid(at for at in grouped if at[0].role == "dpo").values():
        seeds_of_rows: set[tuple[int | None, ...]] = set()
        for at in rows:
            seeds_of_rows.add(tuple(key.seed for key in grouped[at]))
        if len(seeds_of_rows) > 1:
            continue
        margins = smallest_margins(list(Paired(grouped, rows).correct.values()))
        for at, margin in zip(rows, margins, strict=True):
            bounds[at] = {"behind": margin.behind, "margin_shown": margin.margin_shown}
    return bounds


def accuracy_row(by_key: Mapping[Policy, pd.DataFrame], benchmark: str) -> dict[str, object]:
    correct = crossed(by_key, benchmark)
    by_seed = correct.mean(axis=1)
    row = row_of(by_key, benchmark, correct)
    row.update(share(correct))
    row["by_seed"] = " ".join(f"{accuracy:.4g}" for accuracy in by_seed)
    row["std_over_seeds"] = standard_deviation(by_seed)
    return row
