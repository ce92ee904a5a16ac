"""Any CSV of `results/tables/` as a sortable table of the page, rounded, with its uncertainty.

Policy, K and group size are the first column. Bounds and deviations are in the cell of their estimate: `x_low` and
`x_high` as "0.772 [0.734, 0.808]", `x_std` as "0.665 ± 0.021". `ci_low` and `ci_high` belong to the column before
them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from g2d.report.markup import cut, plain
from g2d.report.sentences import p_words
from g2d.report.styles import names
from g2d.tables.frames import Cells

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
    qualified_by = qualifiers(frame)
    hidden = set(chain.from_iterable(qualified_by.values()))
    columns = []
    constant = []
    for column in sorted(frame.columns, key=_place):
        has_no_values = len(frame) > 0 and frame[column].isna().all()
        if column in hidden or has_no_values:
            continue
        if _is_constant(frame[[column, *qualified_by.get(column, ())]]):
            constant.append(column)
        else:
            columns.append(column)
    digits = {column: _digits(frame, column, qualified_by.get(column, ())) for column in (*columns, *constant)}

    def cell(record: Cells, column: str) -> Cell:
        of_column = digits[column]
        decimals_shown = of_column.get(record.get("measure"), of_column[None])
        return _cell(record, column, qualified_by.get(column, ()), decimals_shown)

    records = frame.head(MAX_ROWS).to_dict("records")
    rows = []
    for record in records:
        rows.append(tuple(cell(record, column) for column in columns))
    return PageTable(
        columns=tuple(columns),
        numeric=tuple(_is_number(frame[column]) for column in columns),
        rows=tuple(rows),
        constant=tuple((column, cell(records[0], column).text) for column in constant),
        n_rows=len(frame),
    )


def _digits(frame: pd.DataFrame, column: str, qualified_by: Sequence[str]) -> dict[Hashable, int]:
    """Return the decimals of a column by measure: of all rows for `None`, and of each measure if it is `value`."""
    shown = [column] if _is_number(frame[column]) else list(qualified_by)
    digits: dict[Hashable, int] = {None: decimals(frame[shown])}
    if column == "value" and "measure" in frame:
        for measure, rows in frame.groupby("measure"):
            digits[measure] = decimals(rows["value"])
    return digits


_FIRST = ("policy", "reference")
_ABOUT = ("difference", "gain", "accuracy", "win_rate", "share")


def _place(column: str) -> int:
    """Return the place of a column: policies, then what the table is about, its p-values, and the others."""
    if column in _FIRST:
        return _FIRST.index(column)
    if column in _ABOUT:
        return len(_FIRST)
    if column.startswith("p_"):
        return len(_FIRST) + 1
    return len(_FIRST) + 2


def with_policies_named(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the name of a policy instead of its label, K and group size."""
    for name in _FIRST:
        key = [name, "K", "group_size"]
        if name != "policy":
            key = [name, f"{name}_K", f"{name}_group_size"]
        if not set(key) <= set(frame.columns):
            continue
        policies = frame[key].set_axis(["policy", "K", "group_size"], axis=1).dropna(subset=["policy"])
        policies = policies.assign(K=policies["K"].astype("Int64"))
        called = pd.Series(names(policies), policies.index, dtype=object)
        frame = frame.drop(columns=key[1:]).assign(**{name: called.reindex(frame.index)})
    return frame


def qualifiers(frame: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the columns with the bounds, or the deviation, of each column that has them."""
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
    if "ci_low" in columns:
        estimate = columns[columns.index("ci_low") - 1]
        by_column[estimate] = ("ci_low", "ci_high")
    return by_column


def decimals(values: pd.Series | pd.DataFrame) -> int:
    """Return the decimals of columns: three significant digits of its largest value, none for whole numbers."""
    numbers = values.to_numpy(dtype=float, na_value=math.nan)
    present = numbers[~np.isnan(numbers)]
    if (present % 1 == 0).all():
        return 0
    return min(6, max(1, 2 - math.floor(math.log10(abs(present).max()))))


def number(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    if value and float(text) == 0:
        return f"{value:.1e}"
    return text


def _is_number(values: pd.Series) -> bool:
    is_boolean = pd.api.types.is_bool_dtype(values)
    return pd.api.types.is_numeric_dtype(values) and not is_boolean


def _is_constant(columns: pd.DataFrame) -> bool:
    """Return whether a column and its qualifiers have the same value, not null, in several rows."""
    if len(columns) < 2 or columns.iloc[:, 0].isna().all():
        return False
    return len(columns.drop_duplicates()) == 1


def _cell(row: Cells, column: str, qualified_by: Sequence[str], digits: int) -> Cell:
    value = row[column]
    if column.startswith("p_") and not pd.isna(value):
        text = plain(p_words(value))
    else:
        text = _shown(value, digits)
    more = [_shown(row[name], digits) for name in qualified_by if not pd.isna(row[name])]
    if len(qualified_by) == 2 and len(more) == 2:
        text += Markup(' <span class="ci">[{}, {}]</span>').format(*more)
    elif len(qualified_by) == 1 and len(more) == 1:
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
