"""What can be a reference answer at all, whoever gives it."""

from __future__ import annotations

from decimal import Decimal


def written_out(number: float) -> str:
    """A finite number in digits: Python's `1e-07` and `1e+16` mean nothing to who reads mathematics."""
    return format(Decimal(repr(number)), "f")


def require_answer(text: str) -> str:
    r"""The same text.

    "inf" and "infinity" stay: Math-Verify reads them as `\infty`, which is an answer of MATH.

    Raises:
        ValueError: it is "nan", which is how a missing number is written as text; any policy could write the same.
    """
    if text.strip().lstrip("+-").lower() == "nan":
        raise ValueError(f"{text!r} is a missing number, not an answer")
    return text
