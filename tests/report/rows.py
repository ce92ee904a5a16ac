"""Rows of tables for the sentences of the answer, and texts that attack a page."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from g2d.report.answer import Answer, answer
from g2d.tables.accuracy import MAIN_COLUMNS


def main(
    *rows: tuple[str, int, float, float],
    n_seeds: int = 3,
    half_width: float = 0.02,
    bounds: Mapping[int, float | tuple[float, float]] | None = None,
) -> pd.DataFrame:
    """Table 1 of one model: (policy, K, accuracy, device-hours) each; by K `at_most` or (`at_least`, `at_most`)."""

    def bounds_of(policy: str, k: int) -> tuple[float | None, float | None]:
        bound = (bounds or {}).get(k) if policy in ("dpo", "g2d") else None
        if isinstance(bound, tuple):
            return bound
        return (None if bound is None else 0.0), bound

    records = [
        {
            **{"model": "m", "policy": policy, "K": k, "group_size": 2 if k else None, "benchmark": "b"},
            **{"n_seeds": n_seeds, "n_problems": 500, "n_clusters": 500, "accuracy": accuracy},
            **{"ci_low": accuracy - half_width, "ci_high": accuracy + half_width, "device_hours": hours},
            **dict(zip(("at_least", "at_most"), bounds_of(policy, k), strict=True)),
        }
        for policy, k, accuracy, hours in rows
    ]
    columns = [name for name in MAIN_COLUMNS if name in records[0]]
    return pd.DataFrame(records, columns=columns).astype(
        {"group_size": "Int64", "at_least": "float64", "at_most": "float64"}
    )


def comparison(policy: tuple[str, int], reference: tuple[str, int], p_value: float) -> dict[str, object]:
    """A row of comparisons.csv."""
    is_primary = policy[0] == "g2d" and reference[0] == "dpo"
    return {
        **{"model": "m", "benchmark": "b", "policy": policy[0], "K": policy[1], "group_size": 2 if policy[1] else None},
        **{"reference": reference[0], "reference_K": reference[1], "reference_group_size": 2 if reference[1] else None},
        **{"difference": 0.02, "ci_low": -0.021, "ci_high": 0.061, "p_value": p_value},
        **{"family": "primary" if is_primary else "exploratory", "family_size": 3},
        **{"n_seeds": 5, "n_clusters": 36, "standard_error": 0.044, "seed_share": 0.9, "problem_share": 0.05},
    }


def answered(table: pd.DataFrame, margin: float, tests: pd.DataFrame | None = None) -> Answer:
    return answer(table, "m", "b", "greedy answers", margin, tests)


def comparisons(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"group_size": "Int64", "reference_group_size": "Int64"})


BASE = ("base", 0, 0.4, 0.0)
GRPO = ("grpo", 1000, 0.5, 26.0)


NONE = ("dpo", 0, 0.5, 2.0)
WARMED = ("g2d", 150, 0.51, 4.0)


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "</template></div><svg onload=alert(1)>",
    "{{7*7}} {% raw %} ${7*7}",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\text{<script>alert(1)</script>}$",
    r"$\text{</math><img src=x onerror=alert(1)>}$",
    r'$\class{a" onclick="alert(1)}{x} \style{background:url(http://x)}{y}$',
    r'$\color{red" onload="alert(1)}{x}$',
    "\\[<img src=x>\\] \\(<b>\\) \\boxed{<i>}",
    "&lt;script&gt; &#60;script&#62; $&#60;b&#62;$",
    "\u202etxet desrever\u202c \u0000 \u200b \x1b[31m",
]
