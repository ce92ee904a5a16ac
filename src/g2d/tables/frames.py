"""Build, write and read tables. Shares are in 0..1. A cell that does not apply or cannot be computed is null."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

import numpy as np
import pandas as pd

from g2d.jobs.files import atomic, read_lines

Cells = Mapping[Any, Any]  # a row by column, as pandas returns it
Rows = Iterator[Cells]
P = ParamSpec("P")
Columns = Mapping[str, str]  # type by name, in the order of the file

# Types of columns, the same in every table; all others are numbers or null. Int64 is a whole number or null.
TYPES = {
    "object": "model policy regime benchmark by_seed measure stage device change prompts"
    " reference family metric levels",
    "int64": "K n_seeds n_problems n_clusters n_samples n_prompts n_replies n_jobs devices n k"
    " family_size reference_K step level cut_off not_judged",
    "Int64": "group_size seed reference_group_size",
    "bool": "chosen selected",
}
TYPE_OF: dict[str, str] = {}
for _type, _names in TYPES.items():
    TYPE_OF.update(dict.fromkeys(_names.split(), _type))


def columns(*names: str, **types: str) -> dict[str, str]:
    """Return the type of each column: its type here, or in every table, or float64."""
    type_of = TYPE_OF | types
    return {name: type_of.get(name, "float64") for name in " ".join(names).split()}


def interval(name: str, ends: tuple[float | None, float | None]) -> dict[str, float | None]:
    return {f"{name}_low": ends[0], f"{name}_high": ends[1]}


def estimate(name: str, value: float | None, ends: tuple[float | None, float | None]) -> dict[str, float | None]:
    return {name: value} | interval(name, ends)


def frame(rows: Iterable[Cells], columns: Columns) -> pd.DataFrame:
    """Return rows as a table of these columns: a missing cell is null, other cells are dropped."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype(dict(columns))


def table_of(columns: Columns) -> Callable[[Callable[P, Rows]], Callable[P, pd.DataFrame]]:
    """Make a function that yields rows return them as a table (`frame`)."""

    def decorate(rows: Callable[P, Rows]) -> Callable[P, pd.DataFrame]:
        @wraps(rows)
        def build(*args: P.args, **kwargs: P.kwargs) -> pd.DataFrame:
            return frame(rows(*args, **kwargs), columns)

        build.columns = columns  # type: ignore[attr-defined]
        return build

    return decorate


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None without any."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return float(np.mean(numbers))


def write_table(path: str | Path, table: pd.DataFrame) -> None:
    """Write CSV, nulls as empty cells, floats with six significant digits.

    An apostrophe precedes text that a spreadsheet would run as a formula. NUL ends a cell for many readers, so it
    becomes U+2400.
    """
    inert = _map_texts(table, _inert)
    # Unquoted, a bare \r ends its line, and the csv module does not quote it.
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if _has_carriage_return(inert) else csv.QUOTE_MINIMAL
    with atomic(path) as draft:
        inert.to_csv(draft, index=False, float_format="%.6g", lineterminator="\n", quoting=quoting)


def _inert(text: str) -> str:
    """Return a text that a spreadsheet does not run."""
    text = text.replace("\0", "\u2400")
    if _FORMULA.match(text):
        return f"'{text}"
    return text


def _has_carriage_return(table: pd.DataFrame) -> bool:
    texts = table.select_dtypes(["object", "string"])
    for name in texts:
        for cell in texts[name]:
            if isinstance(cell, str) and "\r" in cell:
                return True
    return False


def read_table(path: str | Path, columns: Columns) -> pd.DataFrame:
    """Read a table of `write_table` with the declared types.

    Raises:
        ValueError: the file is not CSV with these types.
    """
    read_lines(path)
    types: Any = dict(columns)  # Any: the stub wants keys of any type that can be hashed
    try:
        written = pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""])
    except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
        raise ValueError(f"{path}: not a readable table: {error}; delete it to have it made again") from None
    return _map_texts(written, _active)


def _active(text: str) -> str:
    """Restore a text that was written as `_inert`."""
    if text.startswith("'") and _FORMULA.match(text):
        return text[1:]
    return text


# Text that begins with an apostrophe gets another one, so that removing one restores it.
_FORMULA = re.compile(r"'*(?![-+]?\d+(?:\.\d+)?\Z)[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def _map_texts(table: pd.DataFrame, function: Callable[[str], str]) -> pd.DataFrame:
    def apply(cell: object) -> object:
        if isinstance(cell, str):
            return function(cell)
        return cell

    texts = table.select_dtypes(["object", "string"])
    mapped: dict[str, pd.Series] = {}
    for name in texts:
        mapped[str(name)] = texts[name].map(apply).astype(texts[name].dtype)
    return table.assign(**mapped)
