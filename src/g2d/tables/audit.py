"""Do the papers' numbers follow from their own tables? Every claim recomputed, as precisely as its cells were printed.

A printed 62.4 stands for anything from 62.35 to 62.45. The range of a formula over all values that its cells may stand
for is what the rows allow; a claim agrees if the stated number, read the same way, lies in that range. So a claim that
disagrees is not a matter of rounding. The numbers and where they come from: `published/README.md`.

    snakemake --cores 1 audit
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from g2d.analysis.statistics import pearson
from g2d.tables.frames import floats, frame, read_table, strings
from g2d.tables.paper import published

QWEN, LLAMA = "Qwen2.5-7B-Instruct", "Llama-3.1-8B-Instruct"
G2D, BRIDGING = "2605.21266", "2506.21495"
GRPO_STEPS = 1000  # of the GRPO rows in Table 1
PROMPTS = 1500  # of a harvest in Table 2
COUNTS = {"K", "n", "n_pairs", "pairable", "all_wrong", "all_correct"}  # printed exactly
AUDIT_COLUMNS = {
    **strings("paper", "where", "model", "quantity", "stated"),
    **floats("recomputed", "low", "high"),
    **strings("result", "note"),
}

Formula = Callable[[np.ndarray], float]


class Printed(NamedTuple):
    """A number as printed: it stands for anything within half a unit of its last digit."""

    value: float
    half_unit: float

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest number that would be printed like this."""
        return self.value - self.half_unit, self.value + self.half_unit


def printed(text: str, exact: bool = False) -> Printed:
    """Read a number with its precision: "62.4" is 62.4 +- 0.05; a count is exact."""
    decimals = len(text.partition(".")[2])
    return Printed(float(text), 0.0 if exact else 0.5 * 10.0**-decimals)


@dataclass(frozen=True)
class Claim:
    """A number that a paper states, and how it follows from the paper's own tables.

    `stated` may begin with >= or <= where the paper gives a bound. With `at_least`, the rows allow no less than the
    formula but do not fix the value.
    """

    paper: str
    where: str
    model: str
    quantity: str
    stated: str
    formula: Formula
    cells: Sequence[Printed]
    at_least: bool = False
    note: str = ""


def attainable(formula: Formula, cells: Sequence[Printed]) -> tuple[float, float]:
    """The smallest and largest value of a formula over everything that the printed cells may stand for.

    Found by a bounded descent from the printed values; the boxes are so small that a formula bends little in them.
    """
    start = np.array([cell.value for cell in cells])
    bounds = [cell.range for cell in cells]
    ends = [
        sign * minimize(lambda x, sign=sign: sign * formula(x), start, method="L-BFGS-B", bounds=bounds).fun
        for sign in (1, -1)
    ]
    return float(ends[0]), float(ends[1])


def audit() -> pd.DataFrame:
    """Recompute every claim.

    Returns:
        `AUDIT_COLUMNS`, one row per claim: stated as printed, recomputed from the printed rows, low and high the range
        that their rounding allows (high null where the rows give a lower bound only), result "agrees" or "disagrees".
    """
    rows = []
    for claim in claims():
        low, high = attainable(claim.formula, claim.cells)
        high = math.inf if claim.at_least else high
        from_, to = _stated_range(claim.stated)
        slack = 1e-6  # of the descent
        agrees = from_ <= high + slack and low - slack <= to
        rows.append(
            {
                "paper": f"arXiv {claim.paper}",
                "where": claim.where,
                "model": claim.model,
                "quantity": claim.quantity,
                "stated": claim.stated,
                "recomputed": claim.formula(np.array([cell.value for cell in claim.cells])),
                "low": low,
                "high": None if claim.at_least else high,
                "result": "agrees" if agrees else "disagrees",
                "note": claim.note or None,
            }
        )
    return frame(rows, AUDIT_COLUMNS)


def read_audit(path: str | Path) -> pd.DataFrame:
    """Read the table of `audit`; what was printed stays text."""
    return read_table(path, AUDIT_COLUMNS)


def _stated_range(stated: str) -> tuple[float, float]:
    bound, number = re.fullmatch(r"(>=|<=)?(.*)", stated).groups()  # type: ignore[union-attr]
    low, high = printed(number).range
    return {">=": (low, math.inf), "<=": (-math.inf, high)}.get(bound, (low, high))


# ------------------------------------------------------------------------------------------------------------ claims


def claims() -> Iterator[Claim]:
    """All audited claims, in the order of the papers' tables."""
    yield from _table_1_costs()
    yield from _table_2_correlations()
    yield from _table_2_pairability()
    yield from _table_4()
    yield from _temperatures()
    yield from _g2d_statements()
    yield from _bridging_statements()


def _cells(table: pd.DataFrame, column: str, **where: str) -> list[Printed]:
    rows = table
    for key, value in where.items():
        rows = rows[rows[key] == value]
    if rows.empty:
        raise KeyError(f"no row with {where}")
    return [printed(text, exact=column in COUNTS) for text in rows[column]]


def _cell(table: pd.DataFrame, column: str, **where: str) -> Printed:
    (cell,) = _cells(table, column, **where)
    return cell


def _table_1_costs() -> Iterator[Claim]:
    """G2D at K holds K of the 1000 GRPO steps (G=2), one harvest and one DPO; the DPO row is a harvest and a DPO."""
    table = published("g2d_table1")
    for model in (QWEN, LLAMA):
        own = table[table["model"] == model]
        parts = [_cell(own, "gpu_hours", method="DPO"), _cell(own, "gpu_hours", method="GRPO", group_size="2")]
        for _, row in own[own["method"] == "G2D"].iterrows():
            share = int(row["K"]) / GRPO_STEPS
            yield Claim(
                G2D,
                "Table 1",
                model,
                f"GPU-hours of G2D at K={row['K']}: DPO (K=0) plus {share:g} of GRPO (G=2, 1000 steps)",
                row["gpu_hours"],
                partial(_cost, share),
                parts,
                note="contains the whole GRPO run" if share == 1 else "if every GRPO step takes equally long",
            )


def _table_2_correlations() -> Iterator[Claim]:
    harvest, accuracy = published("g2d_table2"), published("g2d_table1")
    trained = accuracy[(accuracy["model"] == QWEN) & accuracy["method"].isin(["DPO", "G2D"])]
    for _, row in published("g2d_table2_correlations").iterrows():
        x = _cells(harvest, row["metric"])
        y = [_cell(trained, "math500", K=k) for k in harvest["K"]]
        found = pearson([cell.value for cell in x], [cell.value for cell in y])
        yield Claim(
            G2D,
            "Table 2, last row",
            QWEN,
            f"Pearson's r of {row['metric']} with MATH-500 accuracy over K",
            row["pearson_r"],
            _pearson,
            x + y,
            note=f"n = {found.n}, p = {found.p:.2f}",
        )


def _table_2_pairability() -> Iterator[Claim]:
    table = published("g2d_table2")
    for _, row in table.iterrows():
        yield Claim(
            G2D,
            "Table 2",
            QWEN,
            f"pairability at K={row['K']}: pairs over {PROMPTS} prompts, percent",
            row["pairability"],
            lambda v: 100 * v[0] / PROMPTS,
            [printed(row["n_pairs"], exact=True)],
        )


def _table_4() -> Iterator[Claim]:
    table = published("g2d_table4")
    for _, row in table.iterrows():
        levels = f"levels {row['levels']}" if "-" in row["levels"] else f"level {row['levels']}"
        outcomes = ["pairable", "all_wrong", "all_correct"]
        counts = [printed(row[outcome], exact=True) for outcome in outcomes]
        n = printed(row["n"], exact=True)
        yield Claim(G2D, "Table 4", QWEN, f"prompts of {levels}: sum of the three outcomes", row["n"], np.sum, counts)
        for outcome, count in zip(outcomes, counts, strict=True):
            yield Claim(
                G2D,
                "Table 4",
                QWEN,
                f"{outcome} prompts of {levels}, percent",
                row[f"{outcome}_share"],
                _percent,
                [count, n],
            )
    single = table[~table["levels"].str.contains("-")]
    upper = table[table["levels"] == "3-5"].iloc[0]
    for column in ("n", "pairable", "all_wrong", "all_correct"):
        quantity = f"levels 3-5: sum of {column} over the levels"
        yield Claim(G2D, "Table 4", QWEN, quantity, upper[column], np.sum, _cells(single, column))
    yield Claim(
        G2D,
        "Table 4",
        QWEN,
        "pass@1 of levels 3-5: mean of the levels weighted by prompts, percent",
        upper["pass_at_1"],
        lambda v: float(v[:3] @ v[3:] / v[3:].sum()),
        _cells(single, "pass_at_1") + _cells(single, "n"),
    )
    lower = table[table["levels"] == "2-4"].iloc[0]
    kept = single[single["levels"].isin(["3", "4"])]
    yield Claim(
        G2D,
        "Table 4",
        QWEN,
        "pass@1 of levels 2-4: no less than the lower of levels 3 and 4, percent",
        lower["pass_at_1"],
        np.min,
        _cells(kept, "pass_at_1"),
        at_least=True,
        note="unless level 2 is harder than level 4; or the two mixes were not sampled alike",
    )
    yield Claim(
        G2D,
        "Table 4",
        QWEN,
        "all-correct prompts of levels 2-4: no smaller share than the lower of levels 3 and 4, percent",
        lower["all_correct_share"],
        lambda v: 100 * float(np.min(v[:2] / v[2:])),
        _cells(kept, "all_correct") + _cells(kept, "n"),
        at_least=True,
        note="unless level 2 is harder than level 4; or the two mixes were not sampled alike",
    )
    first = published("g2d_table2").iloc[0]
    for column, stated in (("pairable", first["n_pairs"]), ("pass_at_1", first["harvest_pass_at_1"])):
        yield Claim(
            G2D,
            "Table 2, K=0",
            QWEN,
            f"{column} of the harvest of M0: levels 2-4 of Table 4",
            stated,
            _first,
            [printed(lower[column], exact=column in COUNTS)],
        )


def _temperatures() -> Iterator[Claim]:
    for _, row in published("g2d_tableA1").iterrows():
        yield Claim(
            G2D,
            "appendix A.1",
            QWEN,
            f"temperature {row['temperature']}: pairable, all-wrong and all-correct shares, percent together",
            "100",
            np.sum,
            [printed(row[column]) for column in ("pairability", "all_wrong_share", "all_correct_share")],
            note="every prompt is one of the three",
        )


def _difference(v: np.ndarray) -> float:
    return float(v[0] - v[1])


def _ratio(v: np.ndarray) -> float:
    return float(v[0] / v[1])


def _percent(v: np.ndarray) -> float:
    return 100 * _ratio(v)


def _first(v: np.ndarray) -> float:
    return float(v[0])


def _cost(share: float, v: np.ndarray) -> float:
    """GPU-hours of the DPO row and a share of those of the GRPO row."""
    return float(v[0] + share * v[1])


def _pearson(v: np.ndarray) -> float:
    """Pearson's r of the first half with the second."""
    return float(np.corrcoef(v.reshape(2, -1))[0, 1])


def _g2d_statements() -> Iterator[Claim]:
    for _, row in published("g2d_statements").iterrows():
        formula, cells = _statement_formula(row["statement"], row["model"])
        yield Claim(G2D, row["where"], row["model"], row["quantity"], row["stated"], formula, cells)


def _statement_formula(statement: str, model: str) -> tuple[Formula, list[Printed]]:
    """How a number in the text of the G2D paper follows from its tables."""
    main, harvest, levels = published("g2d_table1"), published("g2d_table2"), published("g2d_table4")
    main = main[main["model"] == model]
    warmed_up = main[main["method"] == "G2D"]
    accuracy, hours = (partial(_cell, main, column) for column in ("math500", "gpu_hours"))

    def g2d(cell: Callable[..., Printed], k: str = "150") -> Printed:
        return cell(method="G2D", K=k)

    def grpo(cell: Callable[..., Printed], group_size: str = "2") -> Printed:
        return cell(method="GRPO", group_size=group_size)

    def by_k(metric: str) -> list[Printed]:
        """A metric over K, taken as printed: what counts is its order."""
        return [Printed(cell.value, 0.0) for cell in _cells(harvest, metric)]

    def peak(v: np.ndarray) -> float:
        return float(harvest["K"].iloc[int(np.argmax(v))])

    def rises(v: np.ndarray) -> float:
        return float((np.diff(v[int(np.argmax(v)) :]) > 0).sum())

    formulas: dict[str, tuple[Formula, list[Printed]]] = {
        "gain_over_grpo": (_difference, [g2d(accuracy), grpo(accuracy)]),
        "compute_ratio": (_ratio, [grpo(hours), g2d(hours)]),
        "share_of_compute": (_ratio, [g2d(hours), grpo(hours)]),
        "same_k_ratio": (_ratio, [grpo(hours), g2d(hours, "1000")]),
        "largest_ratio": (lambda v: v[0] / np.min(v[1:]), [grpo(hours), *_cells(warmed_up, "gpu_hours")]),
        "smallest_gain": (lambda v: np.min(v[1:]) - v[0], [grpo(accuracy), *_cells(warmed_up, "math500")]),
        "dpo_over_grpo": (_difference, [accuracy(method="DPO"), grpo(accuracy)]),
        "group_size_gain": (_difference, [grpo(accuracy, "4"), grpo(accuracy)]),
        "group_size_accuracy": (_first, [grpo(accuracy, "4")]),
        "group_size_gap": (_difference, [g2d(accuracy), grpo(accuracy, "4")]),
        "best_grpo": (np.max, [grpo(accuracy), grpo(accuracy, "4")]),
        "entropy_peak": (peak, by_k("entropy")),
        "mid_band_peak": (peak, by_k("mid_band")),
        "pairability_peak": (peak, by_k("pairability")),
        "entropy_decline": (rises, by_k("entropy")),
        "mid_band_decline": (rises, by_k("mid_band")),
        "pair_quantity": (_difference, [_cell(published("g2d_table3"), "math500", n_pairs=n) for n in ("708", "680")]),
        "level_5_wrong": (_percent, [_cell(levels, column, levels="5") for column in ("all_wrong", "n")]),
    }
    return formulas[statement]


def _bridging_statements() -> Iterator[Claim]:
    table = published("bridging_table1")
    for _, row in published("bridging_statements").iterrows():
        for benchmark in ("math500", "numina", "amc23"):
            offline, online, grpo = (
                _cells(table, benchmark, method=name) for name in ("Offline DPO", "Online DPO", "GRPO")
            )
            if row["statement"] == "online_over_offline":
                cells = offline + online + grpo + _cells(table, benchmark, method="Semi-online DPO")
                formula: Formula = lambda v: float(np.min(v[1:]) - v[0])  # noqa: E731
            else:
                cells, formula = online + grpo, _difference
            quantity = row["quantity"].format(benchmark=benchmark) + ", points"
            yield Claim(BRIDGING, row["where"], row["model"], quantity, row["stated"], formula, cells)


# ---------------------------------------------------------------------------------------------------------- terminal


def summary(table: pd.DataFrame) -> str:
    """The audit for people: what disagrees first, then what agrees, one line per claim."""
    lines = []
    for result, says in (
        ("disagrees", "do not follow from the papers' own tables"),
        ("agrees", "agree with them to within rounding"),
    ):
        rows = table[table["result"] == result]
        lines.append(f"{len(rows)} of {len(table)} published numbers {says}:")
        for row in rows.to_dict("records"):
            low, high = row["low"], row["high"]
            allowed = f"{low:.4g} or more" if pd.isna(high) else f"{low:.4g} to {high:.4g}"
            note = "" if pd.isna(row["note"]) else f" ({row['note']})"
            lines.append(f"  {row['where']}, {row['model']}: {row['quantity']}")
            lines.append(f"    stated {row['stated']}, recomputed {row['recomputed']:.4g} ({allowed}){note}")
        lines.append("")
    return "\n".join(lines)


def print_summary(table: str | Path, log: str | Path) -> None:
    """Print the summary of a table of `audit`, to the terminal and into a file."""
    text = summary(read_audit(table))
    Path(log).write_text(text, encoding="utf-8")
    print(text, flush=True)
