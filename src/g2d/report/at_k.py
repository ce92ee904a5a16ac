"""Accuracies that a run of one K prints (`snakemake k50`)."""

from __future__ import annotations

import pandas as pd

from g2d.report.phrases import percent_interval
from g2d.report.styles import names


def accuracies_at(k: int, main: pd.DataFrame) -> list[str]:
    """Return a line per benchmark and policy of this K, and of M0, from Table 1; accuracies with 95 % intervals."""
    is_at_k = (main["K"] == k) & (main["policy"] != "g2d-auto")
    rows = main[is_at_k | (main["policy"] == "base")]
    lines = []
    for name, row in zip(names(rows), rows.to_dict("records"), strict=True):
        seeds = "1 seed" if row["n_seeds"] == 1 else f"{row['n_seeds']} seeds"
        score = percent_interval(row["accuracy"], row["ci_low"], row["ci_high"])
        lines.append(f"{row['model']}, {row['benchmark']}: {name} {score}, {seeds}")
    return sorted(lines, key=lambda line: line.split(":")[0])
