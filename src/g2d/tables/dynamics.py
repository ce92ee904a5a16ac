"""Online trainings step by step, and which of them collapsed: training.csv and collapses.csv."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pandas as pd

from g2d.analysis.dynamics import MEASURES, WATCHED, binned, collapse
from g2d.experiment.keys import PolicyKey
from g2d.tables.frames import Rows, floats, integers, strings, table_of

TRAINING_COLUMNS = {
    **strings("model", "measure", "policy"),
    **integers("group_size", "n_seeds", "step"),
    **floats("tokens", "value", "value_low", "value_high"),
}
COLLAPSE_COLUMNS = {
    **strings("model", "policy"),
    **integers("K", "group_size", "seed"),
    **strings("measure"),
    **floats("share", "start", "lowest"),
    "at_step": "Int64",
    "collapsed": "bool",
}


@table_of(TRAINING_COLUMNS)
def training_table(logs: Mapping[PolicyKey, pd.DataFrame]) -> Rows:
    """The course of every online training, in stretches of a twentieth of its steps.

    Args:
        logs: `g2d.analysis.dynamics.steps_of`, by the policy at which a training ends.

    Returns:
        `TRAINING_COLUMNS`, a row per measure, training and stretch; what was not logged has no rows.
    """
    grouped: dict[PolicyKey, list[pd.DataFrame]] = {}
    for key, steps in logs.items():
        grouped.setdefault(key.over_seeds, []).append(binned(steps))
    for measure, (key, courses) in product(MEASURES, grouped.items()):
        together = pd.concat(courses)
        stretches = together.groupby(level=0)
        mean = stretches[["step", "tokens", measure]].mean()
        mean = mean.assign(low=stretches[measure].min(), high=stretches[measure].max())
        for row in mean.dropna().to_dict("records"):
            yield {
                **{"model": key.model, "measure": measure, "policy": key.regime, "group_size": key.group_size},
                **{"n_seeds": len(courses), "step": round(row["step"]), "tokens": row["tokens"]},
                **{"value": row[measure], "value_low": row["low"], "value_high": row["high"]},
            }


@table_of(COLLAPSE_COLUMNS)
def collapse_table(logs: Mapping[PolicyKey, pd.DataFrame], share: float) -> Rows:
    """Whether entropy or length of an online training fell below a share of what they began with.

    Args:
        logs: as for `training_table`.
        share: of the start.

    Returns:
        `COLLAPSE_COLUMNS`, a row per training of ten steps or more, seed and measure.
    """
    for (key, steps), measure in product(logs.items(), WATCHED):
        if (found := collapse(steps[measure], share)) is not None:
            names = {"model": key.model, "policy": key.regime, "K": key.k, "group_size": key.group_size}
            yield names | {"seed": key.seed, "measure": measure, "share": share, **found}
