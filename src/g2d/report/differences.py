"""Two policies side by side: do they differ? By the paired test that was made of them, else by their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

ALPHA = 0.05
INTERVALS = {"single": "ci", "family": "family"}  # as in `Difference`: as the columns of comparisons.csv begin
NBSP = "\u00a0"  # keeps a number and its unit on one line


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
    several_groups: bool = False  # whether K alone does not say which policy is meant

    @property
    def name(self) -> str:
        """As it is called in a sentence."""
        if self.policy == "grpo":
            return f"GRPO alone (G={self.group_size}, K={self.k})"
        return f"K={self.k} (G={self.group_size})" if self.several_groups and self.group_size else f"K={self.k}"

    @property
    def score(self) -> str:
        """Accuracy with its interval, in per cent."""
        return f"{100 * self.accuracy:.1f}{NBSP}% [{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class Difference:
    """How two policies differ in accuracy, first minus second, in percentage points."""

    points: float
    distinct: bool
    evidence: str  # what `distinct` rests on
    single: tuple[float, float] | None = None  # 95 % interval of this comparison, had it been the only one
    family: tuple[float, float] | None = None  # of all comparisons at once, one of which was picked
    family_size: int = 1

    @property
    def shown(self) -> str:
        """The points with their sign, and their interval."""
        return f"{signed(self.points)} points" + ("" if self.family is None else f" {interval_text(self.family)}")


def compare(first: Row, second: Row, comparisons: pd.DataFrame | None) -> Difference:
    """First against second: by the paired test that was made of them, else by their intervals."""
    points = 100 * (first.accuracy - second.accuracy)
    found = None if comparisons is None else _tested(comparisons, first, second)
    if found is not None:
        p, detectable = found["p_holm"], 100 * found["minimum_detectable"]
        ends = {name: (100 * found[f"{start}_low"], 100 * found[f"{start}_high"]) for name, start in INTERVALS.items()}
        size = int(found["family_size"])
        name = "Holm-corrected p" if size > 1 else "p"
        if p <= ALPHA:
            return Difference(points, True, f"paired test, {name} = {p:.2g}", **ends, family_size=size)
        missed = f"this grid would have found {detectable:.1f} points about four times in five"
        return Difference(points, False, f"{name} = {p:.2g}; {missed}", **ends, family_size=size)
    distinct = first.low > second.high or second.low > first.high
    return Difference(points, distinct, "intervals apart" if distinct else "intervals overlap")


def _tested(comparisons: pd.DataFrame, first: Row, second: Row) -> dict[Any, Any] | None:
    """What `comparisons.csv` has about two policies, first minus second whichever of them is its reference."""
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


def signed(points: float) -> str:
    """Percentage points with their sign."""
    return f"{points:+.1f}".replace("-", "−")


def interval_text(ends: tuple[float, float]) -> str:
    """Both ends with their signs."""
    return f"[{signed(ends[0])}, {signed(ends[1])}]"
