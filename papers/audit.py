"""Recompute the papers' claims from their own tables, with the precision of the printed cells.

A printed 62.4 is a number from 62.35 to 62.45. A claim agrees if its stated range overlaps the range of its formula
over all values of the cells, so rounding cannot make it disagree. `src/g2d/tables/published/README.md` has the sources.

    snakemake --cores 1 audit                       # prints the summary
    python -m papers.audit [papers/audit.csv]       # also writes the table, which a test compares
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from g2d.plain import say
from g2d.tables.frames import columns, frame, write_table
from papers import power
from papers.bridging_claims import bridging_statements
from papers.claims import Claim, Formula, Printed, printed
from papers.g2d_table_claims import table_1_costs, table_2_correlations, table_2_pairability, table_4, temperatures
from papers.g2d_text_claims import g2d_statements
from papers.offpolicy_claims import aime_shares, offpolicy_statements

AUDIT_COLUMNS = columns(
    "paper where model quantity stated recomputed low high result note",
    **dict.fromkeys(("paper", "where", "quantity", "stated", "result"), "object"),
)


def attainable(formula: Formula, cells: Sequence[Printed]) -> tuple[float, float]:
    """Return the smallest and largest value of a formula over the ranges of its cells.

    Found by a bounded descent from the printed values: the ranges are so small that formulas are nearly linear there.
    """
    start, bounds = np.array([cell.value for cell in cells]), [cell.range for cell in cells]
    ends = [
        sign * minimize(lambda x, sign=sign: sign * formula(x), start, method="L-BFGS-B", bounds=bounds).fun
        for sign in (1, -1)
    ]
    return float(ends[0]), float(ends[1])


def audit() -> pd.DataFrame:
    """Recompute every claim.

    Returns:
        `AUDIT_COLUMNS`, one row per claim: stated, as printed; recomputed from the printed rows; low and high, the
            range that their rounding allows (high is null if the rows give only a lower bound); result, "agrees" or
            "disagrees".
    """
    rows = []
    for claim in claims():
        low, high = attainable(claim.formula, claim.cells)
        high = math.inf if claim.at_least else high
        from_, to = _stated_range(claim.stated)
        slack = 1e-6  # error of the descent
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


def _stated_range(stated: str) -> tuple[float, float]:
    bound, number = re.fullmatch(r"(>=|<=)?(.*)", stated).groups()  # type: ignore[union-attr]
    low, high = printed(number).range
    return {">=": (low, math.inf), "<=": (-math.inf, high)}.get(bound, (low, high))


def claims() -> Iterator[Claim]:
    """Yield all audited claims, in the order of the papers' tables."""
    yield from table_1_costs()
    yield from table_2_correlations()
    yield from table_2_pairability()
    yield from table_4()
    yield from temperatures()
    yield from g2d_statements()
    yield from bridging_statements()
    yield from offpolicy_statements()
    yield from aime_shares()


def summary(table: pd.DataFrame) -> str:
    """Describe the claims, first those that disagree."""
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
            lines.append(f"  {row['paper']}, {row['where']}, {row['model']}: {row['quantity']}")
            lines.append(f"    stated {row['stated']}, recomputed {row['recomputed']:.4g} ({allowed}){note}")
        lines.append("")
    return "\n".join(lines)


def main(log: str | Path | None = None, table: str | Path | None = None) -> None:
    """Print the summaries of audit and power, also into a log; write the table of the audit."""
    audited = audit()
    text = f"{summary(audited)}\n{power.summary(power.power())}\n"
    say(text)
    if log:
        Path(log).write_text(text, encoding="utf-8")
    if table:
        write_table(table, audited)


if __name__ == "__main__":
    main(table=next(iter(sys.argv[1:]), None))
