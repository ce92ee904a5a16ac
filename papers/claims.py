"""A number that a paper states, the printed cells that it follows from, and the formula between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

QWEN, LLAMA = "Qwen2.5-7B-Instruct", "Llama-3.1-8B-Instruct"
G2D, BRIDGING, OFF_POLICY = "2605.21266", "2506.21495", "2505.22257"
COUNTS = {"K", "n", "n_pairs", "pairable", "all_wrong", "all_correct"}  # printed exactly

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


def cells_of(table: pd.DataFrame, column: str, **where: str) -> list[Printed]:
    """The cells of a column in the rows with these values.

    Raises:
        KeyError: there is no such row.
    """
    rows = table
    for key, value in where.items():
        rows = rows[rows[key] == value]
    if rows.empty:
        raise KeyError(f"no row with {where}")
    return [printed(text, exact=column in COUNTS) for text in rows[column]]


def cell_of(table: pd.DataFrame, column: str, **where: str) -> Printed:
    """The only cell of a column in the row with these values."""
    (cell,) = cells_of(table, column, **where)
    return cell


def difference(v: np.ndarray) -> float:
    """The first cell minus the second."""
    return float(v[0] - v[1])


def ratio(v: np.ndarray) -> float:
    """The first cell over the second."""
    return float(v[0] / v[1])


def percent(v: np.ndarray) -> float:
    """The first cell as a share of the second."""
    return 100 * ratio(v)


def first_cell(v: np.ndarray) -> float:
    """A number that is stated in two places."""
    return float(v[0])
