"""How a table is made, written and read back: its columns with their types, and texts that no spreadsheet runs.

Shares lie in 0..1; what does not apply or cannot be computed is null.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
import pandas as pd

from g2d.jobs.files import atomic, read_lines

Rows = Iterator[dict[Any, Any]]
P = ParamSpec("P")
Columns = Mapping[str, str]  # type by name, in the order of the file


# Types of columns, the same in every table; all others are numbers or null. Int64 is a whole number or null.
TYPES = {
    "object": "model policy regime benchmark measure status stage device currency change swept settings edge prompts"
    " run seeds not_compared reference family against more over axis beaten_by truth metric pooling verdict"
    " source problem_id reference_answer extracted_answer levels scope note",
    "int64": "K n_seeds n_problems n_policies n_samples n_prompts n_replies n_rollouts n_studies n_steps n_asked"
    " n_probed n_online n_others n_jobs n_attempts n_failed n_stopped n_killed n_repeated n_lost_attempts"
    " tokens_generated_all devices n k family_size reference_K last_K look step level budget verbatim cut_off"
    " not_judged",
    "Int64": "group_size seed reference_group_size beaten_by_K beaten_by_group_size n_paired_seeds"
    " at_step problems_needed fresh_asked fresh_verbatim",
    "bool": "chosen selected fresh collapsed enough cheapest_enough this_grid in_window as_good advised",
}
TYPE_OF = {name: kind for kind, names in TYPES.items() for name in names.split()}


def columns(*names: str, **types: str) -> dict[str, str]:
    """Columns, their names separated by spaces, with their types; `types` are those that differ in this table."""
    return {name: types.get(name) or TYPE_OF.get(name, "float64") for name in " ".join(names).split()}


def interval(name: str, ends: tuple[float | None, float | None]) -> dict[str, float | None]:
    """Cells of the ends of an interval."""
    return {f"{name}_low": ends[0], f"{name}_high": ends[1]}


def estimate(name: str, value: float | None, ends: tuple[float | None, float | None]) -> dict[str, float | None]:
    """Cells of a number and of its interval."""
    return {name: value} | interval(name, ends)


def frame(rows: Iterable[Mapping[str, Any]], columns: Columns) -> pd.DataFrame:
    """Rows as a table of these columns; what a row lacks is null, and what it has besides is left out."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype(dict(columns))


def table_of(
    columns: Columns, where_known: Columns | None = None
) -> Callable[[Callable[P, Iterable[Mapping[str, Any]]]], Callable[P, pd.DataFrame]]:
    """Of a function that yields rows, the one that returns them as a table (`frame`); a column of `where_known` is only
    there where some row has a value for it."""
    more = where_known or {}

    def decorate(rows: Callable[P, Iterable[Mapping[str, Any]]]) -> Callable[P, pd.DataFrame]:
        @wraps(rows)
        def build(*args: P.args, **kwargs: P.kwargs) -> pd.DataFrame:
            table = frame(rows(*args, **kwargs), {**columns, **more})
            return table.drop(columns=[name for name in more if table[name].isna().all()])

        build.columns = {**columns, **more}  # type: ignore[attr-defined]
        return build

    return decorate


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the known values as a cell: null without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def write_table(path: str | Path, table: pd.DataFrame) -> None:
    """Write CSV, nulls as empty cells, floats with six significant digits.

    Text (of models, problems, the configuration) that a spreadsheet would run as a formula, because it begins with =,
    +, -, @, a tab or a line break and is no plain number, gets an apostrophe before it; `unescaped` takes it away. A
    NUL, which ends a cell for many readers, becomes its picture (U+2400) for good.
    """
    inert = _map_texts(table, lambda text: ("'" if _FORMULA.match(text) else "") + text.replace("\0", "\u2400"))
    texts = inert.select_dtypes(["object", "string"])
    # Without quotes a bare \r would end its line, and the csv module leaves it without.
    broken = any("\r" in cell for name in texts for cell in texts[name] if isinstance(cell, str))
    with atomic(path) as draft:
        inert.to_csv(
            draft,
            index=False,
            float_format="%.6g",
            lineterminator="\n",
            quoting=csv.QUOTE_NONNUMERIC if broken else csv.QUOTE_MINIMAL,
        )


def read_table(path: str | Path, columns: Columns) -> pd.DataFrame:
    """Read what `write_table` wrote, with the types that its maker declares and the texts as they were.

    A declared column may be missing and another one be there, whose type is then what its cells look like: tables of
    earlier versions are read too.

    Raises:
        ValueError: the file is not CSV with these types; the message names it.
    """
    read_lines(path)
    types: Any = dict(columns)  # Any: the stub wants keys of any type that can be hashed
    try:
        return unescaped(pd.read_csv(path, dtype=types, keep_default_na=False, na_values=[""]))
    except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
        raise ValueError(f"{path}: not a readable table: {error}; delete it to have it made again") from None


def unescaped(table: pd.DataFrame) -> pd.DataFrame:
    """A table that was read from a CSV of `write_table`, with the texts that were written."""
    return _map_texts(table, lambda text: text[1:] if text[:1] == "'" and _FORMULA.match(text) else text)


# An apostrophe that was there before gets another one, so that taking one away gives the text back.
_FORMULA = re.compile(r"'*(?![-+]?\d+(?:\.\d+)?\Z)[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def _map_texts(table: pd.DataFrame, function: Callable[[str], str]) -> pd.DataFrame:
    def apply(cell: Any) -> Any:
        return function(cell) if isinstance(cell, str) else cell

    texts = table.select_dtypes(["object", "string"])
    return table.assign(**{str(name): texts[name].map(apply) for name in texts})
