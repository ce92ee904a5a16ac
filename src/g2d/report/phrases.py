from __future__ import annotations

import math
from collections.abc import Sequence

from g2d.tables.frames import Cells

NBSP = "\u00a0"  # keeps a number and its unit on one line


def listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def these_weights(n_seeds: int, before: bool = False) -> str:
    if n_seeds > 1:
        return ""
    if before:
        return "with these weights, "
    return " with these weights"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{NBSP}%"


def percent_interval(share: float, low: float, high: float, digits: int = 1) -> str:
    return f"{percent(share, digits)} [{100 * low:.{digits}f}, {100 * high:.{digits}f}]"


def percent_of(row: Cells, name: str, bounds: str = "") -> str:
    """Return "12.3 % [10.1, 14.5]" from a column and its bounds (names begin with `bounds`)."""
    bounds = bounds or name
    return percent_interval(row[name], row[f"{bounds}_low"], row[f"{bounds}_high"])


def signed(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def signed_interval(low: float, high: float) -> str:
    """Write an interval in percentage points: [−0.1, +2.5]."""
    return f"[{signed(low)}, {signed(high)}]"


def points(share: float, low: float, high: float) -> str:
    return f"{signed(share)} points {signed_interval(low, high)}"


def time_unit(hours: float) -> tuple[str, int]:
    """Return the unit that suits a time, and how many of it make an hour."""
    if hours >= 1:
        return "hours", 1
    if hours >= 1 / 60:
        return "minutes", 60
    return "seconds", 3600


def at_most(share: float) -> str:
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f}"
