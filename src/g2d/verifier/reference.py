"""What can be a reference answer at all, whoever gives it."""

from __future__ import annotations


def require_answer(text: str) -> str:
    r"""The same text.

    "inf" and "infinity" stay: Math-Verify reads them as `\infty`, which is an answer of MATH.

    Raises:
        ValueError: it is "nan", which is how a missing number is written as text; any policy could write the same.
    """
    if text.strip().lstrip("+-").lower() == "nan":
        raise ValueError(f"{text!r} is a missing number, not an answer")
    return text
