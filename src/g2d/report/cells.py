"""Any CSV of `results/tables/` as a sortable table of the page, rounded, with its uncertainty.

Policy, K and group size are the first column. Bounds and deviations are in the cell of their estimate: `x_low` and
`x_high` as "0.772 [0.734, 0.808]", `x_std` as "0.665 ± 0.021". `ci_low` and `ci_high` belong to the nearest column
before them whose values they enclose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from g2d.report.markup import cut, plain
from g2d.report.styles import names

MAX_ROWS = 2000  # a phone sorts this many without a pause
MAX_CELL = 2000  # characters of a text; the CSV has the rest
MISSING = "–"


@dataclass(frozen=True)
class Cell:
    text: Markup
    key: str


@dataclass(frozen=True)
class PageTable:
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    constant: tuple[tuple[str, Markup], ...]  # columns with the same value in all rows, shown once
    n_rows: int  # rows of the file; the first `MAX_ROWS` are shown


def cells_of(frame: pd.DataFrame) -> PageTable:
    frame = with_policies_named(frame)
    qualified = qualifiers(frame)
    hidden = {column for columns in qualified.values() for column in columns}
    columns = sorted((column for column in frame.columns if column not in hidden), key=_place)
    numeric = {column: _is_number(frame[column]) for column in columns}
    digits = {
        column: decimals(frame[[column] if numeric[column] else [*qualified.get(column, ())]]) for column in columns
    }
    by_measure = frame.groupby("measure") if {"measure", "value"} <= set(frame.columns) else ()
    of_measures: dict[Any, int] = {measure: decimals(rows["value"]) for measure, rows in by_measure}
    constant = [column for column in columns if _is_constant(frame[[column, *qualified.get(column, ())]])]
    shown = [column for column in columns if column not in constant]
    records = frame.head(MAX_ROWS).to_dict("records")

    def cell(row: Mapping[Any, Any], column: str) -> Cell:
        decimals_shown = digits[column] if column != "value" else of_measures.get(row.get("measure"), digits[column])
        return _cell(row, column, qualified.get(column, ()), decimals_shown)

    return PageTable(
        columns=tuple(shown),
        numeric=tuple(numeric[column] for column in shown),
        rows=tuple(tuple(cell(row, column) for column in shown) for row in records),
        constant=tuple((column, cell(records[0], column).text) for column in constant),
        n_rows=len(frame),
    )


_FIRST = ("policy", "reference")
_ABOUT = ("difference", "gain", "accuracy", "win_rate", "share")


def _place(column: str) -> int:
    if column in _FIRST:
        return _FIRST.index(column)
    if column in _ABOUT or column.startswith("p_"):
        return len(_FIRST) + (column not in _ABOUT)
    return len(_FIRST) + 2


def with_policies_named(frame: pd.DataFrame) -> pd.DataFrame:
    for name in _FIRST:
        k, size = ("K", "group_size") if name == "policy" else (f"{name}_K", f"{name}_group_size")
        if {name, k, size} <= set(frame.columns):
            keys = frame[[name, k, size]].set_axis(["policy", "K", "group_size"], axis=1)
            named = keys["policy"].notna()
            keys = keys.assign(K=keys["K"].astype("Int64"))
            called = pd.Series(names(keys[named]), keys.index[named], dtype=object)
            frame = frame.drop(columns=[k, size]).assign(**{name: called.reindex(frame.index)})
    return frame


def qualifiers(frame: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    by_column: dict[str, tuple[str, ...]] = {}
    columns = list(frame.columns)
    for column in columns:
        low = f"{column}_low"
        high = f"{column}_high"
        deviation = f"{column}_std"
        if low in columns and high in columns:
            by_column[column] = (low, high)
        elif deviation in columns:
            by_column[column] = (deviation,)
    if "ci_low" in columns and "ci_high" in columns:
        before = columns[: columns.index("ci_low")]
        for column in [name for name in reversed(before) if _encloses(frame, name)][:1]:
            by_column[column] = ("ci_low", "ci_high")
    return by_column


def decimals(values: pd.Series | pd.DataFrame) -> int:
    """Return the decimals of a column: three significant digits of its largest value, none for whole numbers."""
    numbers = values.to_numpy(dtype=float, na_value=math.nan)
    present = numbers[~np.isnan(numbers)]
    if (present % 1 == 0).all():
        return 0
    return min(6, max(1, 2 - math.floor(math.log10(abs(present).max()))))


def number(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return f"{value:.1e}" if value and not float(text) else text


def _encloses(frame: pd.DataFrame, column: str) -> bool:
    if not _is_number(frame[column]):
        return False
    rows = frame[[column, "ci_low", "ci_high"]].dropna()
    return not rows.empty and bool(((rows["ci_low"] <= rows[column]) & (rows[column] <= rows["ci_high"])).all())


def _is_number(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values))


def _is_constant(columns: pd.DataFrame) -> bool:
    return len(columns) > 1 and bool(columns.iloc[:, 0].notna().any()) and len(columns.drop_duplicates()) == 1


def _cell(row: Mapping[Any, Any], column: str, qualified_by: tuple[str, ...], digits: int) -> Cell:
    value = row[column]
    text = _shown(value, digits)
    more = [_shown(row[name], digits) for name in qualified_by if not pd.isna(row[name])]
    if len(more) == 2:
        text += Markup(' <span class="ci">[{}, {}]</span>').format(*more)
    elif len(more) == 1 and len(qualified_by) == 1:
        text += Markup(' <span class="ci">± {}</span>').format(*more)
    return Cell(text, "" if pd.isna(value) else str(value))


def _shown(value: Any, digits: int) -> Markup:
    if pd.isna(value):
        return Markup(MISSING)
    if isinstance(value, bool):
        return Markup("yes" if value else "no")
    if isinstance(value, (int, float)):
        return plain(number(value, digits))
    text = str(value)
    return plain(text[:MAX_CELL]) + cut(text, MAX_CELL)
