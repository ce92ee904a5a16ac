r"""What stands behind a quantity: whether it is a unit, and which.

Math-Verify drops a trailing unit before it parses, from a list that also holds single letters and common words: `2s`
becomes 2, `a + b + c` becomes `a +`, and `5\text{ or six}` becomes 5. And having dropped them, it cannot tell 10 cm
from 10 m. Pure functions; only what this module can name with confidence counts as a unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = {
    "meter": "m meter metre",
    "centimeter": "cm centimeter centimetre",
    "millimeter": "mm millimeter millimetre",
    "kilometer": "km kilometer kilometre",
    "inch": "in inch",
    "foot": "ft foot feet",
    "yard": "yd yard",
    "mile": "mi mile",
    "acre": "acre",
    "liter": "l liter litre",
    "milliliter": "ml milliliter millilitre",
    "gallon": "gal gallon",
    "gram": "g gram",
    "kilogram": "kg kilogram",
    "ounce": "oz ounce",
    "pound": "lb pound",
    "second": "s sec second",
    "minute": "min minute",
    "hour": "h hr hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "cent": "cent penny pennies ¢",
    "dollar": "dollar usd buck",
    "euro": "euro eur €",
    "degree": "degree deg",
    "radian": "radian rad",
    "am": "am",
    "pm": "pm",
    "percent": "percent",
}
_UNITS = {alias + plural: unit for unit, names in _NAMES.items() for alias in names.split() for plural in ("", "s")}
_UNITS |= {"inches": "inch"}
_COMPOUND = {"mph": "mile per hour", "kmh": "km per hour", "kmph": "km per hour"}
_POWER = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}

_GROUP = re.compile(r"\\(?:text|mbox)\s*\{(?P<words>[^{}\\]*)\}(?:\^\{?(?P<power>[0-9])\}?)?\.?")
_BARE = re.compile(r"(?P<space>\s?)(?P<words>[A-Za-z][A-Za-z .]*)")
_NOT_A_LABEL = re.compile(r"[0-9=+,;:<>]|\b(?:or|and|not)\b")


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of an answer that would be dropped.

    Attributes:
        text: as written, without spaces.
        is_label: whether it names a unit or the thing counted, so that dropping it keeps the quantity.
        unit: canonical factors with their powers, if it is a unit known here.
    """

    text: str
    is_label: bool
    unit: frozenset[tuple[str, int]] | None = None


NO_TAIL = Tail("", True)


def read_tail(quantity: str, tail: str) -> Tail:
    """Classify what Math-Verify drops from the end of a quantity."""
    written = "".join(tail.split())
    if not written:
        return NO_TAIL
    if group := _GROUP.fullmatch(tail.strip()):
        unit = find_unit(group["words"], int(group["power"] or 1))
        return Tail(written, unit is not None or not _NOT_A_LABEL.search(group["words"]), unit)
    if (bare := _BARE.fullmatch(tail)) and _is_number(quantity):
        unit = find_unit(bare["words"])
        # `2s` is an expression in s, `2 s` are two seconds; `3 students` are three, whatever they are.
        is_label = len(written) > 1 or (unit is not None and bool(bare["space"]))
        return Tail(written, is_label, unit)
    return Tail(written, False)


def read_symbol(latex: str) -> Tail:
    """The unit that a sign stands for: dollars or degrees."""
    named = [unit for sign, unit in ((r"\$", "dollar"), (r"\circ", "degree")) if sign in latex]
    return Tail("", True, frozenset({(named[0], 1)})) if len(named) == 1 else NO_TAIL


def find_unit(words: str, power: int = 1) -> frozenset[tuple[str, int]] | None:
    """Canonical form of a unit's name: `square feet` is foot to the second, `m/s` is meter per second."""
    names = _COMPOUND.get(words.strip(" ."), words).lower().replace("/", " per ").replace(".", "").split()
    found: dict[str, int] = {}
    sign, factor = 1, power
    for name in names:
        if name == "per":
            sign = -1
        elif name in ("squared", "cubed") and found:
            found[next(reversed(found))] *= _POWER[name]
        elif name in _POWER:
            factor = _POWER[name]
        elif name in _UNITS:
            found[_UNITS[name]] = sign * factor
            factor = 1
        else:
            return None
    return frozenset(found.items()) or None


def differ(reference: Tail, answer: Tail) -> bool:
    """Whether both name a unit, and not the same."""
    return None not in (reference.unit, answer.unit) and reference.unit != answer.unit


def _is_number(quantity: str) -> bool:
    """Whether no letters are left beside commands, so that a word behind it cannot be one of several factors."""
    return not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", quantity)) and bool(re.search(r"[0-9]", quantity))
