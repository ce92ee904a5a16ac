"""Memory or reasoning, in a sentence a benchmark: what the partial-prompt probe tells apart, and nothing beyond.

That questions are completed word for word more often than fresh ones does not prove that they were in a training set:
what is missing can be short, or a phrase that anybody would guess. So the strongest word here is "may".
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from g2d.report.differences import ALPHA, NBSP


def contamination_sentences(table: pd.DataFrame) -> list[str]:
    """A sentence for every model and benchmark that was not generated for the run.

    Args:
        table: `contamination.csv`, from `g2d.tables.contamination.contamination_table`.
    """
    return [_sentence(row) for row in table.to_dict("records") if not row["fresh"] and row["n_asked"]]


def memory_warnings(table: pd.DataFrame, model: str, benchmark: str) -> tuple[str, ...]:
    """The sentence about one benchmark where its accuracy may be memory; nothing otherwise."""
    own = table[(table["model"] == model) & (table["benchmark"] == benchmark)]
    return tuple(_sentence(row) for row in own.to_dict("records") if not row["fresh"] and _may_be_memory(row))


def _may_be_memory(row: dict[Any, Any]) -> bool:
    if pd.isna(row["p_holm"]):
        return False
    return row["p_holm"] <= ALPHA and row["verbatim_share"] > row["fresh_verbatim"] / row["fresh_asked"]


def _sentence(row: dict[Any, Any]) -> str:
    name = row["benchmark"]
    said = (
        f"Shown the first {100 * row['share']:.0f}{NBSP}% of a question of {name}, {row['model']} wrote the rest word "
        f"for word for {row['verbatim']} of {row['n_asked']} ({_percent(row, 'verbatim')}), and answered "
        f"{row['right']} right ({_percent(row, 'right')})"
    )
    if pd.isna(row["p_holm"]):
        return f"{said}. No benchmark of this run is fresh, so there is nothing to compare that with."
    beside = f"of fresh questions, {row['fresh_verbatim']} of {row['fresh_asked']}"
    test = f"Fisher's exact test, p = {row['p_holm']:.2g}"
    if _may_be_memory(row):
        return (
            f"{said}; {beside} ({test}). So accuracy on {name} may be memory, unless what was missing, "
            f"{row['rest_words']:g} words in the median, can be guessed."
        )
    if row["p_holm"] <= ALPHA:
        return f"{said}; {beside}, which is more ({test})."
    return (
        f"{said}; {beside}. The two do not differ significantly ({test}), which does not show that {name} was never "
        "seen."
    )


def _percent(row: dict[Any, Any], name: str) -> str:
    low, high = 100 * row[f"{name}_low"], 100 * row[f"{name}_high"]
    return f"{100 * row[f'{name}_share']:.1f}{NBSP}% [{low:.1f}, {high:.1f}]"
