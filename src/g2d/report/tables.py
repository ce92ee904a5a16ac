"""Any CSV of `results/tables/` as a table of the page: sorted by its raw values, shown rounded, with its uncertainty.

Nothing here knows a particular table. Columns that bound or qualify another one are shown in its cell: `x_low` and
`x_high` as "0.772 [0.734, 0.808]", `x_std` as "0.665 ± 0.021"; `ci_low` and `ci_high` belong to the nearest column
before them whose values they enclose. The CSV keeps all columns apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from g2d.report.markup import plain

MAX_ROWS = 2000  # a phone sorts this many without a pause
MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """What a reader sees, and the number or text that sorting compares."""

    text: Markup
    key: str


@dataclass(frozen=True)
class Table:
    """A table of the page."""

    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    n_rows: int  # in the file, of which the first `MAX_ROWS` are shown


def read_cells(path: str | Path) -> Table:
    """Read a CSV for the page.

    Raises:
        ValueError: not a CSV; the message names the file.
    """
    try:
        frame = pd.read_csv(path, dtype={"levels": str}, keep_default_na=False, na_values=[""])
    except ValueError as error:
        raise ValueError(f"{path}: not a readable table: {error}") from None
    qualified = qualifiers(frame)
    hidden = {column for columns in qualified.values() for column in columns}
    shown = [column for column in frame.columns if column not in hidden]
    rows = [
        tuple(_cell(row, column, qualified.get(column, ())) for column in shown)
        for row in frame.head(MAX_ROWS).to_dict("records")
    ]
    return Table(tuple(shown), tuple(_is_number(frame[column]) for column in shown), tuple(rows), len(frame))


def qualifiers(frame: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """The columns that are shown in another column's cell: its bounds (low, high) or its deviation (std,)."""
    found: dict[str, tuple[str, ...]] = {}
    columns = list(frame.columns)
    for column in columns:
        low, high, deviation = f"{column}_low", f"{column}_high", f"{column}_std"
        if low in columns and high in columns:
            found[column] = (low, high)
        elif deviation in columns:
            found[column] = (deviation,)
    if "ci_low" in columns and "ci_high" in columns:
        before = columns[: columns.index("ci_low")]
        enclosed = (column for column in reversed(before) if _encloses(frame, column))
        if (column := next(enclosed, None)) is not None:
            found[column] = ("ci_low", "ci_high")
    return found


def number(value: float, digits: int = 4) -> str:
    """A number as a reader wants it: whole numbers whole, others with so many significant digits at most."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):d}"
    return f"{value:.{digits}g}" if abs(value) < 1e4 else f"{value:.0f}"


def _encloses(frame: pd.DataFrame, column: str) -> bool:
    if not _is_number(frame[column]):
        return False
    known = frame[[column, "ci_low", "ci_high"]].dropna()
    return not known.empty and bool(((known["ci_low"] <= known[column]) & (known[column] <= known["ci_high"])).all())


def _is_number(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values))


def _cell(row: Mapping[Any, Any], column: str, qualified_by: tuple[str, ...]) -> Cell:
    value = row[column]
    text = _shown(value)
    more = [_shown(row[name], 3) for name in qualified_by if not _missing(row[name])]
    if len(more) == 2:
        text += Markup(' <span class="ci">[{}, {}]</span>').format(*more)
    elif len(more) == 1 and len(qualified_by) == 1:
        text += Markup(' <span class="ci">± {}</span>').format(*more)
    return Cell(text, "" if _missing(value) else str(value))


def _shown(value: Any, digits: int = 4) -> Markup:
    if _missing(value):
        return Markup(MISSING)
    if isinstance(value, bool):
        return Markup("yes" if value else "no")
    return plain(number(value, digits) if isinstance(value, (int, float)) else str(value))


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
