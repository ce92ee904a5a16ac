"""Checks of reference answers."""

from __future__ import annotations

from decimal import Decimal


def written_out(number: float) -> str:
    """A finite number in digits, without Python's exponents (`1e-07`)."""
    return format(Decimal(repr(number)), "f")


def require_answer(text: str) -> str:
    r"""The same text. "inf" and "infinity" are allowed: Math-Verify reads them as `\infty`, an answer of MATH.

    Raises:
        ValueError: it is "nan", a missing number as text.
    """
    if text.strip().lstrip("+-").lower() == "nan":
        raise ValueError(f"{text!r} is a missing number, not an answer")
    return text
