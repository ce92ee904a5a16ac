"""Sentences about the contamination check.

Questions that a model completes more often than fresh ones may have been read, or have ends that are easy to guess; so
the sentences claim only that accuracy "may be memory".
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.report.phrases import percent, percent_of


def contamination_sentences(table: pd.DataFrame) -> list[str]:
    return [_sentence(row) for row in table.to_dict("records") if not row["fresh"] and row["n_asked"]]


def memory_warnings(table: pd.DataFrame) -> tuple[str, ...]:
    return tuple(_sentence(row) for row in table.to_dict("records") if not row["fresh"] and _may_be_memory(row))


def _may_be_memory(row: dict[Any, Any]) -> bool:
    return row["p_holm"] <= LEVEL and row["verbatim_share"] > row["fresh_verbatim"] / row["fresh_asked"]


def _sentence(row: dict[Any, Any]) -> str:
    name = row["benchmark"]
    verbatim, right = (percent_of(row, f"{kind}_share", kind) for kind in ("verbatim", "right"))
    text = (
        f"Shown the first {percent(row['share'], 0)} of a question of {name}, {row['model']} wrote the rest word "
        f"for word for {row['verbatim']} of {row['n_asked']} ({verbatim}), and answered "
        f"{row['right']} right ({right})"
    )
    if pd.isna(row["p_holm"]):
        return f"{text}. No benchmark of this run is fresh, so there is nothing to compare that with."
    fresh = f"of fresh questions, {row['fresh_verbatim']} of {row['fresh_asked']}"
    test = f"Fisher's exact test, p = {row['p_holm']:.2g}"
    if _may_be_memory(row):
        return (
            f"{text}; {fresh} ({test}). So accuracy on {name} may be memory, unless what was missing, "
            f"{row['rest_words']:g} words in the median, can be guessed."
        )
    if row["p_holm"] <= LEVEL:
        return f"{text}; {fresh}, which is more ({test})."
    return (
        f"{text}; {fresh}. The two do not differ significantly ({test}), which does not show that {name} was never "
        "seen."
    )
