"""Whether two policies differ: by their paired test in `comparisons.csv`, else by whether their intervals overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from g2d.analysis.comparisons import LEVEL
from g2d.report.phrases import percent_interval, points, signed

INTERVALS = {"single": "ci", "family": "family"}  # field of `Difference`: how its columns in comparisons.csv begin


@dataclass(frozen=True)
class Row:
    """A policy's row of Table 1."""

    policy: str
    k: int
    group_size: int | None
    n_seeds: int
    n_problems: int
    accuracy: float
    low: float
    high: float
    device_hours: float | None
    several_groups: bool = False  # whether there are policies with this K and other group sizes

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        if self.policy == "grpo":
            return f"GRPO alone (G={self.group_size}, K={self.k})"
        return f"K={self.k} (G={self.group_size})" if self.several_groups and self.group_size else f"K={self.k}"

    @property
    def score(self) -> str:
        """Accuracy with its interval, in per cent."""
        return percent_interval(self.accuracy, self.low, self.high)

    @property
    def rounded(self) -> str:
        """As `score`, in whole per cent."""
        return percent_interval(self.accuracy, self.low, self.high, 0)


@dataclass(frozen=True)
class Difference:
    """How two policies differ in accuracy, first minus second, in -1..1."""

    accuracy: float
    distinct: bool
    evidence: str  # what `distinct` rests on
    single: tuple[float, float] | None = None  # 95 % interval of this comparison, had it been the only one
    family: tuple[float, float] | None = None  # of all comparisons at once, one of which was picked
    family_size: int = 1

    @property
    def shown(self) -> str:
        """The points with their sign, and their interval."""
        return f"{signed(self.accuracy)} points" if self.family is None else points(self.accuracy, *self.family)


def compare(first: Row, second: Row, comparisons: pd.DataFrame | None) -> Difference:
    """First against second: by their paired test where there is one, else by their intervals."""
    difference = first.accuracy - second.accuracy
    found = None if comparisons is None else _tested(comparisons, first, second)
    if found is not None:
        p, detectable = found["p_holm"], 100 * found["minimum_detectable"]
        ends = {name: (found[f"{start}_low"], found[f"{start}_high"]) for name, start in INTERVALS.items()}
        size = int(found["family_size"])
        name = "Holm-corrected p" if size > 1 else "p"
        if p <= LEVEL:
            return Difference(difference, True, f"paired test, {name} = {p:.2g}", **ends, family_size=size)
        missed = f"this grid would have found {detectable:.1f} points about four times in five"
        return Difference(difference, False, f"{name} = {p:.2g}; {missed}", **ends, family_size=size)
    distinct = first.low > second.high or second.low > first.high
    return Difference(difference, distinct, "intervals apart" if distinct else "intervals overlap")


def _tested(comparisons: pd.DataFrame, first: Row, second: Row) -> dict[Any, Any] | None:
    """The row of `comparisons.csv` about two policies, with its intervals as first minus second."""
    names = ("policy", "K", "group_size"), ("reference", "reference_K", "reference_group_size")
    for a, b, turned in ((first, second, False), (second, first, True)):
        rows = comparisons[_is(comparisons, names[0], a) & _is(comparisons, names[1], b)].dropna(subset=["p_holm"])
        if len(rows):
            row = rows.iloc[0].to_dict()
            if turned:
                for start in INTERVALS.values():
                    row |= {f"{start}_low": -row[f"{start}_high"], f"{start}_high": -row[f"{start}_low"]}
            return row
    return None


def _is(comparisons: pd.DataFrame, columns: tuple[str, str, str], row: Row) -> pd.Series:
    policy, k, group_size = columns
    same_group = comparisons[group_size].fillna(0) == (row.group_size or 0)
    return (comparisons[policy] == row.policy) & (comparisons[k] == row.k) & same_group
