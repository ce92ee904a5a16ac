"""Gains over M0 by finishing, format and reasoning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from g2d.analysis import decomposition
from g2d.analysis.statistics import mean_interval
from g2d.grid.runs import Policy
from g2d.tables.evaluations import (
    BY_BENCHMARK,
    Evaluations,
    by_policy,
    crossed,
    m0_of,
    row_of,
)
from g2d.tables.frames import Rows, columns, estimate, table_of

DECOMPOSITION_COLUMNS = columns(
    BY_BENCHMARK,
    "n_seeds n_problems accuracy finished parseable correct gain",
    *(f"from_{factor} from_{factor}_low from_{factor}_high" for factor in decomposition.FACTORS),
)


@table_of(DECOMPOSITION_COLUMNS)
def decomposition_table(evaluations: Evaluations) -> Rows:
    """A row per policy and benchmark: its gain over M0 in parts (`g2d.analysis.decomposition`), null without M0."""
    grouped = by_policy(evaluations)
    for at, by_key in grouped.items():
        base = grouped.get(m0_of(at), {})
        reached = _reached(base | by_key, at[1])
        policy = reached[:, -len(by_key) :]
        shares = policy.mean(axis=(1, 2))
        finished, parseable, correct = decomposition.factors(shares)
        row = row_of(by_key, at[1], policy[2])
        row["accuracy"] = shares[2]
        row["finished"] = finished
        row["parseable"] = parseable
        row["correct"] = correct
        if base and at[0].role != "base":
            reference = np.broadcast_to(reached[:, :1], policy.shape)
            row.update(_gain(reference, policy))
        yield row


def _gain(reference: np.ndarray, policy: np.ndarray) -> dict[str, float | None]:
    """Return the gain and its parts with intervals, from (3 stages, n_seeds, n_problems) each."""
    old = reference.mean(axis=(1, 2))
    new = policy.mean(axis=(1, 2))
    values: dict[str, float | None] = {"gain": float(new[2] - old[2])}
    parts = decomposition.contributions(old, new)
    to_first_order = decomposition.linearised(reference, policy)
    for factor, part, linear in zip(decomposition.FACTORS, parts, to_first_order, strict=True):
        values |= estimate(f"from_{factor}", float(part), mean_interval(linear))
    return values


def _reached(by_key: Mapping[Policy, pd.DataFrame], benchmark: str) -> np.ndarray:
    """Return shares of a problem's answers, (3 stages, policies, problems)."""
    reached: dict[Policy, pd.DataFrame] = {}
    for key, answers in by_key.items():
        reached[key] = answers.join(decomposition.stages(answers["verdict"]))
    return np.stack([crossed(reached, benchmark, stage) for stage in decomposition.STAGES])
