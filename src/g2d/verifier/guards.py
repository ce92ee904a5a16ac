r"""Guards against answers that Math-Verify wrongly finds equal.

Two cases have none because the right reading depends on the question: `10` equals `10\%` (GSM8K writes percentages
without the sign), and `(1,2)` equals `1,2`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product

import sympy

_BASE = re.compile(r"(?<![\\A-Za-z_0-9])[0-9]+_\{?([0-9]+)\}?")
_SPACE = r"(?:\s|~|\\[,;:!> ]|\\q?quad|\\text\{\s*\})"
# The first number is a term: `\frac 1 2` and `x^2 3` do not match.
_SIDE_BY_SIDE = re.compile(
    rf"(?:^|[-+=(\[{{,;<>]){_SPACE}*[0-9.]*[0-9]{_SPACE}+[0-9]|"
    r"[0-9]\s*(?:\\text\s*\{(?!\s*(?:and|or)\s*\})[^{}]*[A-Za-z][^{}]*\}|(?!and|or)[A-Za-z]{2,}|[RHMhms])[\s.,]*-?[0-9]"
)

# A subscript of a number that is a term: `x^2_n` and `\frac{1}{2}_n` do not match.
_BELOW_NUMBER = re.compile(
    rf"(?<![\\A-Za-z_0-9^{{}}])\{{?[0-9]+\}}?{_SPACE}*_{_SPACE}*"
    r"(\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+(?:\s*\{[^{}]*\})?|[^\s{}\\])"
)
_FONT = re.compile(r"\\(?:text[a-z]*|math[a-z]*|mbox|operatorname)(?![A-Za-z])|[{}\s~]")
_BASE_IN_WORDS = re.compile("(?:base)?(?:[0-9]+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|sixteen)")

_NAN = re.compile(r"(?<![A-Za-z])nan(?![A-Za-z])", re.IGNORECASE)

RELATIVE_TOLERANCE = 0.01

Readings = Sequence[object]  # an answer as Math-Verify reads it: a sympy object if it can be parsed, and the text
Equal = Callable[[Sequence[object], Sequence[object]], bool]


def bases_differ(reference: str, answer: str) -> bool:
    """Reject `11_3` for `11_2`: Math-Verify ignores the base. One side may omit it."""
    expected = sorted(_BASE.findall(reference))
    answered = sorted(_BASE.findall(answer))
    return bool(expected and answered) and expected != answered


def subscripts_differ(reference: str, answer: str) -> bool:
    r"""Reject `10_{\text{million}}` for `10`: Math-Verify drops subscripts of numbers. `bases_differ` handles bases."""
    expected = _subscripts(reference)
    answered = _subscripts(answer)
    return expected != answered and any(not _BASE_IN_WORDS.fullmatch(below) for below in (*expected, *answered))


def _subscripts(latex: str) -> list[str]:
    """Return the subscripts of numbers, without fonts and in order."""
    return sorted(_FONT.sub("", below) for below in _BELOW_NUMBER.findall(latex))


def numbers_side_by_side(reference: str, answer: str) -> bool:
    """Reject `2 3` for 5, and `3 R 4` for `4 R 3`: Math-Verify adds or multiplies numbers beside each other."""
    if not (_SIDE_BY_SIDE.search(reference) or _SIDE_BY_SIDE.search(answer)):
        return False
    return _FONT.sub("", re.sub(_SPACE, "", reference)) != _FONT.sub("", re.sub(_SPACE, "", answer))


_ABSOLUTE_VALUE = re.compile(r"\s*(?:\\left)?(?:\||\\[lr]?vert\s)\s*[a-vxy]\s*(?:\\right)?(?:\||\\[lr]?vert)\s*=")
_RATIO = re.compile(r"\s*[0-9]+\s*(?::|\\colon)\s*[0-9]+\s*")
_INTEGER = re.compile(r"\s*-?[0-9]+\s*")
_TIME = re.compile(r"(?i)[0-9]+\s*(?:\\!)?:(?:\\!)?\s*[0-9]{2}\s*\\text ?\{ ?[ap]\.? ?m\b")


def only_absolute_value(reference: str, answer: str) -> bool:
    """Reject `|x|=7` for 7: Math-Verify compares the right sides. |z| and |w| are usually the answer."""
    return bool(_ABSOLUTE_VALUE.match(answer)) and "=" not in reference


def ratios_differ(reference: str, answer: str) -> bool:
    """Reject `7:1` for 7, and 7 for `7:1`, and `2:15` for `4:30 p.m.`: Math-Verify divides."""
    sides = (reference, answer)
    if any(map(_TIME.match, sides)):
        return [int(n) for n in re.findall("[0-9]+", reference)] != [int(n) for n in re.findall("[0-9]+", answer)]
    return any(_RATIO.fullmatch(side) for side in sides) and any(_INTEGER.fullmatch(side) for side in sides)


def not_a_number(reference: str, answer: str) -> bool:
    """Reject `nan`: Math-Verify reads it as a word, and a word equals itself."""
    return bool(_NAN.search(reference) or _NAN.search(answer))


def undefined(reference: Readings, answer: Readings) -> bool:
    """Reject `1:00` for `12:00`: both divide by zero."""
    if reference[-1] == answer[-1]:
        return False
    for reading in (*reference, *answer):
        if isinstance(reading, (sympy.Basic, sympy.MatrixBase)) and reading.has(sympy.nan, sympy.zoo):
            return True
    return False


_BETWEEN_COORDINATES = re.compile(r"(?:[,;]|\\(?:text|mbox|mathrm)\s*\{\s*and\s*\}|\band\b)+")
_COORDINATE = re.compile(rf"(?:{_SPACE}|\\left|\()*(?P<equation>(?P<name>[A-Za-z])\s*=.*)", re.DOTALL)


def coordinates_out_of_order(reference: str, answer: str) -> bool:
    """Reject `b=1, a=2` for `(1,2)`: Math-Verify compares the right sides in the order written."""
    if "=" in reference or not reference.startswith(("(", r"\left(")):
        return False
    names = [part["name"] for part in _coordinates(answer) if part]
    return names != sorted(names)


def coordinates_in_order(reference: str, answer: str) -> str | None:
    """Return `a=1, b=2` for `b=2, a=1` if the reference is a point; None if the order is right or unknown."""
    if not coordinates_out_of_order(reference, answer):
        return None
    parts = _coordinates(answer)
    equations = {part["name"]: part["equation"] for part in parts if part}
    if len(equations) < len(parts):
        return None
    return ", ".join(equations[name] for name in sorted(equations))


def _coordinates(answer: str) -> list[re.Match[str] | None]:
    parts = _BETWEEN_COORDINATES.split(answer)
    return [_COORDINATE.fullmatch(part) for part in parts if part.strip()]


def unsolved_differ(reference: Readings, answer: Readings, equal: Equal) -> bool:
    """Reject `f(2)=7` for `f(2)=5`: Math-Verify compares solutions, and both equations have none."""
    expected = _equations(reference)
    answered = _equations(answer)
    matched = set()
    for a, b in product(expected, answered):
        if equal([a], [b]) or equal([a], [-b]):
            matched |= {a, b}
    return any(map(_is_unsolved, expected - matched)) and any(map(_is_unsolved, answered - matched))


def _equations(readings: Readings) -> set[sympy.Expr]:
    """Return left minus right side of each equation."""
    if not readings or not isinstance(readings[0], sympy.Basic):
        return set()
    differences = set()
    for equation in readings[0].atoms(sympy.Eq):
        left, right = equation.args
        is_number = [isinstance(side, sympy.Expr) and not side.is_Matrix for side in (left, right)]
        if all(is_number):
            differences.add(left - right)
    return differences


def _is_unsolved(difference: sympy.Expr) -> bool:
    try:
        return not sympy.solve(difference, difference.free_symbols)
    except Exception:  # Math-Verify does not compare solutions then
        return False


def magnitudes_differ(reference: Readings, answer: Readings) -> bool:
    r"""Reject `\frac{1}{2^{61}}` for `\frac{1}{2^{60}}`: Math-Verify compares with an absolute tolerance."""
    a = value(reference)
    b = value(answer)
    if a is None or b is None or max(abs(a), abs(b)) >= 1:  # its tolerance only matters for small numbers
        return False
    return bool(abs(a - b) > RELATIVE_TOLERANCE * max(abs(a), abs(b)))


def value(readings: Readings) -> sympy.Expr | None:
    """Return the number that an answer is, None if it is none."""
    if not readings or not isinstance(readings[0], sympy.Expr) or readings[0].free_symbols:
        return None
    try:
        number = readings[0].doit().evalf(15)
        return number if number.is_real else None
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        return None


_SYMBOL = re.compile(r"\\(?:begin|end|text|mbox|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+|(?P<letter>[A-Za-z])")
_SPARE = "qwzvukhjt"


def with_capitals_renamed(reference: str, answer: str) -> tuple[str, str] | None:
    """Rename each capital that also occurs as a small letter in the same answer: `R` next to `r`."""
    sides = [{match["letter"] for match in _SYMBOL.finditer(side)} - {None} for side in (reference, answer)]
    twice = sorted({letter for side in sides for letter in side if letter.isupper() and letter.lower() in side})
    spare = [letter for letter in _SPARE if not {letter, letter.upper()} & (sides[0] | sides[1])]
    if not twice or len(spare) < len(twice):
        return None
    names = dict(zip(twice, spare, strict=False))

    def renamed(side: str) -> str:
        return _SYMBOL.sub(lambda match: names.get(match["letter"] or "", match[0]), side)

    return renamed(reference), renamed(answer)
