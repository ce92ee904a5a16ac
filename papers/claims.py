"""Claims: numbers that a paper states, with the formula and the printed cells that they should follow from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from g2d.tables.paper import published

QWEN, LLAMA = "Qwen2.5-7B-Instruct", "Llama-3.1-8B-Instruct"
G2D, BRIDGING, OFF_POLICY = "2605.21266", "2506.21495", "2505.22257"
COUNTS = {"K", "n", "n_pairs", "pairable", "all_wrong", "all_correct"}  # printed exactly

Formula = Callable[[np.ndarray], float]


class Printed(NamedTuple):
    """A printed number, known to half a unit of its last digit."""

    value: float
    half_unit: float

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest number that would be printed like this."""
        return self.value - self.half_unit, self.value + self.half_unit


def printed(text: str, exact: bool = False) -> Printed:
    """Read a number with its precision: "62.4" is 62.4 +- 0.05, unless it is an exact count."""
    decimals = len(text.partition(".")[2])
    return Printed(float(text), 0.0 if exact else 0.5 * 10.0**-decimals)


@dataclass(frozen=True)
class Claim:
    """A number that a paper states, and its formula over cells of the paper's tables.

    `stated` begins with >= or <= if the paper gives a bound. With `at_least`, the formula is only a lower bound.
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


def cells_of(table: pd.DataFrame, column: str, **where: str) -> list[Printed]:
    """Return the cells of a column in the rows with these values; a KeyError if there is no such row."""
    rows = table
    for key, value in where.items():
        rows = rows[rows[key] == value]
    if rows.empty:
        raise KeyError(f"no row with {where}")
    return [printed(text, exact=column in COUNTS) for text in rows[column]]


def cell_of(table: pd.DataFrame, column: str, **where: str) -> Printed:
    """Return the cell of a column in the only row with these values."""
    (cell,) = cells_of(table, column, **where)
    return cell


Formulas = Mapping[str, tuple[Formula, list[Printed]]]  # by the value of {of} in the quantity of a statement


def stated_claims(paper: str, table: str, formulas: Callable[[str], Formulas]) -> Iterator[Claim]:
    """Yield the claims of a table of statements; `formulas` maps the name of a statement to its formulas."""
    for _, row in published(table).iterrows():
        for of, (formula, cells) in formulas(row["statement"]).items():
            quantity = row["quantity"].format(of=of)
            yield Claim(paper, row["where"], row["model"], quantity, row["stated"], formula, cells, note=row["note"])


def difference(v: np.ndarray) -> float:
    return float(v[0] - v[1])


def ratio(v: np.ndarray) -> float:
    return float(v[0] / v[1])


def percent(v: np.ndarray) -> float:
    return 100 * ratio(v)


def first_cell(v: np.ndarray) -> float:
    """Return the cell of a number that is stated in two places."""
    return float(v[0])
