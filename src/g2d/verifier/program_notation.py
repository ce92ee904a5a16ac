"""Functions and numbers in the notation of programs: `exp(5)`, `abs(y-4)`, `3**12`, `1.2e5`."""

from __future__ import annotations

import re

_TEXT = re.compile(r"(\\(?:text[a-z]*|mbox|operatorname|math[a-z]*)\s*\{[^{}]*\})")
_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])(?P<name>exp|ln|log|arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|sec|csc|cot)"
    r"(?=\s*\(|\s*[0-9]|\s+[a-z](?![A-Za-z])|\s*\\)"
)
_POWER = re.compile(r"\s*\*\*\s*(?P<power>-?[0-9]+(?:\.[0-9]+)?|[A-Za-z]|\([^()]*\))")
_EXPONENT = re.compile(
    r"(?<![A-Za-z0-9_.\\])(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)[eE](?P<power>[+-]?[0-9]{1,3})(?![0-9A-Za-z.^_])"
)
_ABSOLUTE = re.compile(r"(?:\\(?:text|operatorname|mathrm)\s*\{\s*abs\s*\}|(?<![A-Za-z\\])abs)\s*\(")


def as_latex(text: str) -> str:
    r"""Write functions, powers and exponents as LaTeX; words in `\text` stay.

    >>> as_latex("exp(5) + 3**12 + 1.2e5 + abs(y-4)")
    '\\exp(5) + 3^{12} + 1.2\\cdot 10^{5} + |y-4|'
    """
    text = _with_bars(text)
    parts = _TEXT.split(text)
    for position in range(0, len(parts), 2):  # odd ones are text
        part = _FUNCTION.sub(r"\\\g<name>", parts[position])
        part = _POWER.sub(lambda match: f"^{{{_without_brackets(match['power'])}}}", part)
        parts[position] = _EXPONENT.sub(_as_product, part)
    return "".join(parts)


def _as_product(match: re.Match[str]) -> str:
    return rf"{match['number']}\cdot 10^{{{int(match['power'])}}}"


def _without_brackets(power: str) -> str:
    return power[1:-1] if power.startswith("(") else power


def _with_bars(text: str) -> str:
    """Replace `abs(...)` by bars."""
    if "abs" not in text:
        return text
    written = ""
    position = 0
    closing_bars: list[bool] = []  # for each open bracket, whether a bar closes it
    while position < len(text):
        opening = _ABSOLUTE.match(text, position)
        if opening:
            written += "|"
            closing_bars.append(True)
            position = opening.end()
            continue
        character = text[position]
        if character == "(":
            closing_bars.append(False)
        elif character == ")" and closing_bars and closing_bars.pop():
            character = "|"
        written += character
        position += 1
    return text if any(closing_bars) else written
