"""Online trainings: curves (training.csv), collapses (collapses.csv) and saturation (saturation.csv)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pandas as pd

from g2d.analysis.crossed import clustered
from g2d.analysis.dynamics import MEASURES, WATCHED, binned, collapse
from g2d.analysis.saturation import saturation
from g2d.experiment.grid import FEWEST_K
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import Evaluations, Row, by_policy, clusters_of, crossed, m0_of, row_of
from g2d.tables.frames import Rows, columns, estimate, table_of

TRAINING_COLUMNS = columns("model measure policy group_size n_seeds step tokens value value_low value_high")
COLLAPSE_COLUMNS = columns("model policy K group_size seed measure share start lowest at_step collapsed")
CURVE = ("asymptote", "midpoint", "slope", "nearly")
SATURATION_COLUMNS = columns(
    "model benchmark policy group_size n_seeds n_problems n_steps last_K status start",
    *(f"{name} {name}_low {name}_high" for name in CURVE),
)


@table_of(TRAINING_COLUMNS)
def training_table(logs: Mapping[PolicyKey, pd.DataFrame]) -> Rows:
    """A row per online training, logged measure and twentieth of its steps: mean and range over seeds."""
    grouped: dict[PolicyKey, list[pd.DataFrame]] = {}
    for key, steps in logs.items():
        grouped.setdefault(key.over_seeds, []).append(binned(steps))
    for measure, (key, courses) in product(MEASURES, grouped.items()):
        stretches = pd.concat(courses).groupby(level=0)
        mean = stretches[["step", "tokens", measure]].mean()
        mean = mean.assign(low=stretches[measure].min(), high=stretches[measure].max())
        for row in mean.dropna().to_dict("records"):
            yield {
                **{"model": key.model, "measure": measure, "policy": key.regime, "group_size": key.group_size},
                **{"n_seeds": len(courses), "step": round(row["step"]), "tokens": row["tokens"]},
                **estimate("value", row[measure], (row["low"], row["high"])),
            }


@table_of(COLLAPSE_COLUMNS)
def collapse_table(logs: Mapping[PolicyKey, pd.DataFrame], share: float) -> Rows:
    """A row per online training, seed and watched measure, if there are enough steps (`collapse`)."""
    for (key, steps), measure in product(logs.items(), WATCHED):
        if (result := collapse(steps[measure], share)) is not None:
            names = {"model": key.model, "policy": key.regime, "K": key.k, "group_size": key.group_size}
            yield names | {"seed": key.seed, "measure": measure, "share": share, **result}


@table_of(SATURATION_COLUMNS)
def saturation_table(evaluations: Evaluations) -> Rows:
    """A row per online training from M0 with at least `FEWEST_K` evaluated K: its sigmoid, null unless it fits."""
    grouped = by_policy(evaluations, keep=lambda key: key.role == "base" or key.on_a_curve)
    curves: dict[tuple[str, str, str, int], list[Row]] = {}
    for at in grouped:
        policy, benchmark = at
        if policy.role != "base" and m0_of(at) in grouped:
            curves.setdefault((policy.model, benchmark, policy.regime, policy.group_size), []).append(at)
    for (_, benchmark, *_), rows in curves.items():
        m0, clusters = grouped[m0_of(rows[0])], clusters_of(grouped[rows[0]])
        answers = [crossed(grouped[at], benchmark) for at in rows]
        if len(rows) < FEWEST_K or len({correct.shape for correct in answers}) > 1:  # too few, or a seed is missing
            continue
        before, steps = crossed(m0, benchmark), [policy.k for policy, _ in rows]
        curve = saturation(steps, clustered(before, clusters), [clustered(shares, clusters) for shares in answers])
        row = row_of(grouped[rows[0]], benchmark, answers[0])
        row |= {"n_steps": len(steps), "last_K": steps[-1], "status": curve.status, "start": float(before.mean())}
        for name in CURVE if curve.status == "fits" else ():
            parameter = getattr(curve, name)
            row |= estimate(name, parameter.value, (parameter.low, parameter.high))
        yield row
