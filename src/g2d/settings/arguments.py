"""Types for numbers on the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def at_least(low: int, kind: Callable[[str], float] = float, *, above: bool = False) -> Callable[[str], float]:
    """Return an argparse type for a finite number that is at least `low`, or above it."""

    def convert(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        is_too_low = value <= low if above else value < low
        if is_too_low or not math.isfinite(value):
            number = "whole number" if kind is int else "number"
            bound = "above" if above else "of at least"
            raise argparse.ArgumentTypeError(f"{text!r} is no {number} {bound} {low}")
        return value

    return convert
