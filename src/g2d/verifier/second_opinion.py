"""A second opinion on whether an answer equals its reference, independent of Math-Verify and sympy.

Strings are normalised as in the MATH and Minerva graders, and numbers compared exactly. Rewards do not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

from g2d.verifier.units import Unit, find_unit, of_price

DOUBT = Fraction(1, 100)  # relative difference up to which a decimal may be rounded
MAX_DIGITS = 1_000  # longer ones are compared as strings


@dataclass(frozen=True, slots=True)
class Answer:
    body: str  # LaTeX without spaces, layout and units
    name: str | None  # variable of a leading `x=` or `x\in`
    unit: Unit | None
    percent: bool  # whether a percent sign was dropped
    base: str | None


def second_opinion(reference: str, answer: str) -> bool | None:
    """Return whether an answer equals the reference; None if unsure."""
    expected, given = normalise(reference), normalise(answer)
    if None not in (expected.name, given.name) and expected.name != given.name:
        return None
    if None not in (expected.unit, given.unit) and expected.unit != given.unit:
        # 10 cm are not 10 m, but 80 cents may be $0.80.
        return False if same(expected.body, given.body) else None
    if expected.base != given.base:
        # `11` may be `11_2` without its base.
        return False if None not in (expected.base, given.base) else None
    if expected.percent != given.percent:
        return _same_percentage(expected, given)
    return same(expected.body, given.body)


def _same_percentage(expected: Answer, found: Answer) -> bool | None:
    literal = same(expected.body, found.body)
    if literal:
        # 10 may be a percentage.
        return True if expected.percent else None
    a, b = number(expected.body), number(found.body)
    if a is None or b is None:
        return None
    return _close(*((a / 100, b) if expected.percent else (a, b / 100)), rounded=True)


GAP = "\N{OPEN BOX}"
_SPACE = re.compile(r"\\[!,;:> ]|~|\s")
_SIDE_BY_SIDE = re.compile(rf"(?<=[0-9])(?:{_SPACE.pattern})+(?=[0-9])")
_GROUPED = re.compile(rf"(?<![0-9])[0-9]{{1,3}}(?:(?:{_SPACE.pattern})[0-9]{{3}})+(?![0-9/])")
_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]ig+[lr]?|displaystyle|textstyle|limits|quad|qquad)(?![A-Za-z])|\\[!,;:> ]|~|\s|\$"
)
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mbox|rm)\s*\{([^{}]*)\}")
_REWRITE = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\frac([0-9A-Za-z])([0-9A-Za-z])"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac([0-9A-Za-z])\{"), r"\\frac{\1}{"),
    (re.compile(r"\\frac(\{[^{}]*\})([0-9A-Za-z])"), r"\\frac\1{\2}"),
    (re.compile(r"\\sqrt([0-9A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"([_^])\{([0-9A-Za-z])\}"), r"\1\2"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\[bpBvV]matrix"), r"\\matrix"),
    (re.compile(r"\{[bpBvV]matrix\}"), r"{matrix}"),
    (re.compile(r"\\leq(?![A-Za-z])"), r"\\le"),
    (re.compile(r"\\geq(?![A-Za-z])"), r"\\ge"),
)
_ASSIGNMENT = re.compile(r"([A-Za-z]{1,2}|[fgh]\([a-z]\))(?:=|\\in(?![A-Za-z]))(?=.)")
_DEGREES = re.compile(r"\^\{?\\circ\}?|°")
_BASE = re.compile(r"(-?[0-9A-Za-z]*[0-9][0-9A-Za-z]*)_\{?([0-9]+)\}?")
_NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def normalise(text: str) -> Answer:
    dollar = frozenset({("dollar", 1)}) if r"\$" in text else None
    text = text.replace(r"\$", "")
    unwrapped, unit = _split_words(text)
    if not dollar or of_price(unit):  # else `\$10 m`: keep the m
        text, unit = unwrapped, dollar or unit
    text, degrees = _DEGREES.subn("", text)
    if degrees:
        unit = frozenset({("degree", 1)})
    text = _GROUPED.sub(lambda match: _SPACE.sub("", match[0]), text)
    body = _LAYOUT.sub("", _SIDE_BY_SIDE.sub(GAP, text))
    body = body[:-1] if body.endswith((".", ",", ";")) and not body.endswith("..") else body
    for pattern, replacement in _REWRITE:
        body = pattern.sub(replacement, body)
    body, signs = re.subn(r"\\?%", "", body)
    name = None
    if assigned := _ASSIGNMENT.match(body):
        name, body = assigned[1], body[assigned.end() :]
    body = body.removeprefix("+")
    base = None
    if written_in := _BASE.fullmatch(body):
        body, base = written_in[1], written_in[2]
    if body.casefold() in _NUMBER_WORDS:
        body = str(_NUMBER_WORDS.index(body.casefold()))
    if unit == {("percent", 1)}:
        unit, signs = None, signs + 1
    return Answer(body, name, unit, bool(signs), base)


def _split_words(text: str) -> tuple[str, Unit | None]:
    match = re.search(rf"(?<=[0-9}}\s!,)]){_WORDS.pattern}(?:\^\{{?([0-9])\}}?)?[\s.]*$", text)
    if match and re.search("[0-9]", text[: match.start()]):
        unit = find_unit(f"{match[1]}^{match[2]}" if match[2] else match[1])
        if unit:
            return _WORDS.sub(r"\1", text[: match.start()]), unit
    bare = re.fullmatch(r"\s*(-?[0-9][0-9.,]*)\s+([A-Za-z][A-Za-z ./]*)", text)
    if bare and find_unit(bare[2]):
        return bare[1], find_unit(bare[2])
    return re.sub(r"(?<=[^,\s])\s*(?<![A-Za-z])(?:and|or)(?![A-Za-z])", ",", _WORDS.sub(r"\1", text)), None


_OPEN, _CLOSE = "([{", ")]}"
_MATRIX = re.compile(r"\\begin\{(?:small)?matrix\}(.*)\\end\{(?:small)?matrix\}", re.DOTALL)


def same(expected: str, found: str) -> bool | None:
    if "nan" in (expected.casefold(), found.casefold()):
        return False
    if expected == found:
        return True if expected else None
    a, b = number(expected), number(found)
    if a is not None and b is not None:
        return _close(a, b, rounded="." in expected + found)
    parts, other_parts = _parts(expected), _parts(found)
    if parts is not None and other_parts is not None:
        return _same_parts(parts, other_parts)
    if _is_word(expected) and _is_word(found):
        return expected.strip("()").casefold() == found.strip("()").casefold()
    return None


def number(body: str) -> Fraction | None:
    """Return the exact value of an integer, decimal, fraction or mixed number."""
    sign = -1 if body.startswith("-") else 1
    body = body.removeprefix("-")
    if body.startswith("-"):
        return None
    if mixed := re.fullmatch(rf"([0-9]+)(?:(\\frac\{{[0-9]+\}}\{{[0-9]+\}})|{GAP}([0-9]+/[0-9]+))", body):
        fraction = number(mixed[2] or mixed[3])
        return None if fraction is None else sign * (int(mixed[1]) + fraction)
    if match := re.fullmatch(r"\\frac\{([^{}]+)\}\{([^{}]+)\}|([^/{}\\]+)/([^/{}\\]+)", body):
        top, bottom = (_decimal(part) for part in match.groups() if part is not None)
        return sign * top / bottom if top is not None and bottom else None
    value = _decimal(body)
    return None if value is None else sign * value


def _decimal(text: str) -> Fraction | None:
    if re.fullmatch(r"-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?", text):
        text = text.replace(",", "")
    if len(text) > MAX_DIGITS or not re.fullmatch(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)", text):
        return None
    return Fraction(text if text[-1] != "." else text[:-1])


def _close(a: Fraction, b: Fraction, rounded: bool) -> bool | None:
    if a == b:
        return True
    return None if rounded and abs(a - b) <= DOUBT * max(abs(a), abs(b)) else False


@dataclass(frozen=True, slots=True)
class _Parts:
    bracket: str
    entries: tuple[str, ...]

    @property
    def ordered(self) -> bool:
        return self.bracket not in ("", "{}")


def _parts(body: str) -> _Parts | None:
    if matrix := _MATRIX.fullmatch(body):
        rows = [row.split("&") for row in re.split(r"\\\\|\\cr(?![a-z])", matrix[1]) if row]
        flat = tuple(entry for row in rows for entry in row)
        kind = "row" if len(rows) == 1 else "column" if len(flat) == len(rows) else f"{len(rows)} rows"
        return _Parts(kind, flat)
    plain = body.replace(r"\{", "{").replace(r"\}", "}").replace(r"\langle", "(").replace(r"\rangle", ")")
    if len(plain) > 2 and plain[0] in _OPEN and plain[-1] in _CLOSE and _wraps(plain):
        entries = tuple(_split(plain[1:-1]))
        return _Parts(plain[0] + plain[-1], entries) if len(entries) > 1 or plain[0] == "{" else None
    entries = tuple(_split(plain))
    return _Parts("", entries) if len(entries) > 1 else None


def _same_parts(a: _Parts, b: _Parts) -> bool | None:
    vectors = {a.bracket, b.bracket} in ({"()", "column"}, {"()", "row"})  # a vector may be written as a point
    if a.bracket != b.bracket and not vectors:
        # [1,2] is never (1,2); (1,2), \{1,2\} and 1,2 may be the same.
        return False if a.ordered and b.ordered and len(a.entries) == len(b.entries) == 2 else None
    if a.ordered and len(a.entries) == len(b.entries):
        opinions = [same(x, y) for x, y in zip(a.entries, b.entries, strict=True)]
        return False if False in opinions else None if None in opinions else True
    if a.ordered:
        return False
    return _same_members(a.entries, b.entries)


def _same_members(a: tuple[str, ...], b: tuple[str, ...]) -> bool | None:
    """Compare as sets, in linear time."""
    keys, other_keys = {_key(entry) for entry in a}, {_key(entry) for entry in b}
    if keys == other_keys:
        # The order of three or more words may matter.
        return None if len(keys) > 2 and a != b and all(map(_is_word, a)) else True
    return False if all(map(_is_certain, a + b)) else None


def _key(body: str) -> Hashable:
    if (value := number(body)) is not None:
        return value
    if (parts := _parts(body)) is not None:
        keys = tuple(_key(entry) for entry in parts.entries)
        return (parts.bracket, keys if parts.ordered else frozenset(keys))
    return body.casefold() if _is_word(body) else body


def _is_certain(body: str) -> bool:
    """Return whether different keys imply different values."""
    if (parts := _parts(body)) is not None:
        return all(map(_is_certain, parts.entries))
    return _is_word(body) or (number(body) is not None and "." not in body)


def _split(text: str) -> Iterator[str]:
    if re.fullmatch(r"-?[0-9]{1,3}(?:,[0-9]{3})+", text):
        yield text  # one number
        return
    commas = [i for i, depth in enumerate(_depths(text)) if depth == 0 and text[i] == ","]
    for start, end in pairwise((-1, *commas, len(text))):
        yield text[start + 1 : end]


def _wraps(text: str) -> bool:
    """Return whether the first bracket closes with the last character, unlike in `(1,2),(3,4)`."""
    return next((i for i, depth in enumerate(_depths(text)) if depth == 0), None) == len(text) - 1


def _depths(text: str) -> Iterator[int]:
    return accumulate((char in _OPEN) - (char in _CLOSE) for char in text)


def _is_word(body: str) -> bool:
    # One or two small letters may be variables; (A) is a choice.
    return bool(re.fullmatch(r"\([A-Za-z]\)|[A-Z]|[A-Za-z]{3,}", body))
