"""How much worse than the best K every K can be: non-inferiority as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd

from g2d.analysis.margins import smallest_margins
from g2d.tables.evaluations import BY_BENCHMARK, Evaluations, Row, by_policy, grid_order, named
from g2d.tables.families import differences_of
from g2d.tables.frames import floats, frame, integers

MARGIN_COLUMNS = {
    **BY_BENCHMARK,
    **integers("n_seeds", "n_problems"),
    **floats("accuracy", "behind", "margin_shown", "margin", "p_enough"),
    "enough": "bool",
}


def margin_table(evaluations: Evaluations, margin: float) -> pd.DataFrame:
    """DPO at every K (and G) against the best of the other K.

    Args:
        evaluations: as for `main_table`.
        margin: by how much a K that is good enough may be worse, in 0..1 (`frontier.margin`).

    Returns:
        `MARGIN_COLUMNS`, one row per model, benchmark, K and group_size, see `g2d.analysis.margins.Margin`: all
        margin_shown of a model and benchmark hold at once, one-sided 95 %.

    Raises:
        ValueError: the seeds of a policy answered different problems.
    """
    grouped = by_policy(evaluations, keep=lambda key: key.role == "dpo")
    by_grid: dict[tuple[str, str], list[Row]] = {}
    for at in grid_order(grouped):
        by_grid.setdefault((at[0].model, at[1]), []).append(at)
    rows: list[dict[str, Any]] = []
    for (_, benchmark), own in by_grid.items():
        differences = differences_of(grouped, own)
        for at, answers, found in zip(own, differences.answers, smallest_margins(differences, margin), strict=True):
            row = named(next(iter(grouped[at])), benchmark) | asdict(found) | {"margin": margin}
            row |= {"n_seeds": answers.shape[0], "n_problems": answers.shape[1], "accuracy": answers.mean()}
            rows.append(row)
    return frame(rows, MARGIN_COLUMNS)
