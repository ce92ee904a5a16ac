"""Types for numbers on the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any


def at_least(low: int, kind: type[int] | type[float] = float, *, above: bool = False) -> Callable[[str], Any]:
    """Return an argparse type for a finite number that is at least `low`, or above it."""

    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value < math.inf or (above and value == low):
            raise argparse.ArgumentTypeError(f"{text!r} is no number {'above' if above else 'of at least'} {low}")
        return value

    return convert
