"""Rows of tables for the sentences of the answer, rows of figures, and texts that attack a page."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import pandas as pd

from g2d.report.answer import Answer, answer
from g2d.report.vega import Spec
from g2d.tables.accuracy import MAIN_COLUMNS


def main(
    *rows: tuple[str, int, float, float],
    n_seeds: int = 3,
    half_width: float = 0.02,
    bounds: Mapping[int, float | tuple[float, float]] | None = None,
) -> pd.DataFrame:
    """Table 1 of one model: (policy, K, accuracy, device-hours) each; by K `at_most` or (`at_least`, `at_most`)."""

    table = pd.DataFrame(rows, columns=["policy", "K", "accuracy", "device_hours"])
    table = table.assign(model="m", benchmark="b", n_seeds=n_seeds, n_problems=500, n_clusters=500)
    table["group_size"] = pd.array([2 if k else None for k in table["K"]], dtype="Int64")
    table["ci_low"] = table["accuracy"] - half_width
    table["ci_high"] = table["accuracy"] + half_width
    table["at_least"] = table["at_most"] = float("nan")
    for k, bound in (bounds or {}).items():
        is_bounded = (table["K"] == k) & table["policy"].isin(["dpo", "g2d"])
        table.loc[is_bounded, ["at_least", "at_most"]] = bound if isinstance(bound, tuple) else (0.0, bound)
    return table[[name for name in MAIN_COLUMNS if name in table]]


def comparison(policy: tuple[str, int], reference: tuple[str, int], p_value: float) -> dict[str, object]:
    """A row of comparisons.csv."""
    name, k = policy
    reference_name, reference_k = reference
    family = "primary" if (name, reference_name) == ("g2d", "dpo") else "exploratory"
    return {
        **{"model": "m", "benchmark": "b", "policy": name, "K": k, "group_size": 2 if k else None},
        **{"reference": reference_name, "reference_K": reference_k},
        **{"reference_group_size": 2 if reference_k else None, "family": family, "family_size": 3},
        **{"difference": 0.02, "ci_low": -0.021, "ci_high": 0.061, "p_value": p_value},
        **{
            "n_seeds": 5,
            "n_problems": 36,
            "n_clusters": 36,
            "standard_error": 0.044,
            "seed_share": 0.9,
            "problem_share": 0.05,
        },
    }


def answered(table: pd.DataFrame, margin: float, tests: pd.DataFrame | None = None) -> Answer:
    return answer(table, "m", "b", "greedy answers", margin, tests)


def comparisons(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"group_size": "Int64", "reference_group_size": "Int64"})


def rows(spec: Spec, *columns: str) -> pd.DataFrame:
    """Return the rows of a figure that have these columns."""
    data = pd.DataFrame(chain.from_iterable(spec["datasets"].values()))
    return data.dropna(subset=list(columns))


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
