"""Curves of online trainings: training.csv."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pandas as pd

from g2d.analysis.training_steps import MEASURES, binned
from g2d.grid.runs import Policy
from g2d.tables.frames import Rows, columns, estimate, table_of

TRAINING_COLUMNS = columns("model measure policy group_size n_seeds step tokens value value_low value_high")


@table_of(TRAINING_COLUMNS)
def training_table(logs: Mapping[Policy, pd.DataFrame]) -> Rows:
    """A row per online training, logged measure and twentieth of its steps: mean and range over seeds."""
    grouped: dict[Policy, list[pd.DataFrame]] = {}
    for key, steps in logs.items():
        grouped.setdefault(key.over_seeds, []).append(binned(steps))
    for measure, (key, courses) in product(MEASURES, grouped.items()):
        stretches = pd.concat(courses).groupby(level=0)
        mean = stretches[["step", "tokens", measure]].mean()
        mean = mean.assign(low=stretches[measure].min(), high=stretches[measure].max())
        for row in mean.dropna().to_dict("records"):
            yield {
                **{"model": key.model, "measure": measure, "policy": key.run_name, "group_size": key.group_size},
                **{"n_seeds": len(courses), "step": round(row["step"]), "tokens": row["tokens"]},
                **estimate("value", row[measure], (row["low"], row["high"])),
            }
