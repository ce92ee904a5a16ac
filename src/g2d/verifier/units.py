r"""Tails of quantities: whether the end of an answer is a unit, and which.

Math-Verify drops a trailing unit before it parses, from a list with single letters and common words: `2s` becomes 2,
`a + b + c` becomes `a +`, `5\text{ or six}` becomes 5, and 10 cm equals 10 m. Here a tail is a unit only where that is
certain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = """
    meter m metre / centimeter cm centimetre / millimeter mm millimetre / kilometer km kilometre / inch in /
    foot ft feet / yard yd / mile mi / acre / liter l litre / gallon gal / gram g / kilogram kg / ounce oz / pound lb /
    second s sec / minute min / hour h hr / day / week / month / year yr /
    cent penny pennies ¢ / dollar usd buck / euro eur / gbp / yen jpy / rupee inr /
    degree deg / radian rad / am / pm / percent
"""  # of every unit its canonical name first
_UNITS = {
    alias + plural: unit
    for unit, *others in map(str.split, _NAMES.split("/"))
    for alias in (unit, *others)
    for plural in ("", "s")
}
_UNITS["inches"] = "inch"
_COMPOUND = {"mph": "mile per hour", "kmh": "km per hour", "kmph": "km per hour"}
_POWER = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}

_SIGNS = {r"\$": "dollar", r"\circ": "degree", "°": "degree", "%": "percent"}
_CURRENCIES = {r"\$": "dollar", "$": "dollar", "€": "euro", r"\euro": "euro", "£": "gbp", r"\pounds": "gbp"}
_CURRENCIES |= {"¥": "yen", "₹": "rupee", "¢": "cent"}

_GROUP = re.compile(r"\\(?:text|mbox)\s*\{(?P<words>(?:[^{}\\]|\\%)*)\}(?:\^\{?(?P<power>[0-9])\}?)?")
_BARE = re.compile(r"(?P<space>\s?)(?P<words>[A-Za-z][A-Za-z .]*)")
_NOT_A_LABEL = re.compile(r"[0-9=+,;:<>/]|\b(?:or|and|not)\b")
_NUMBER = r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_FRACTION = rf"(?:{_NUMBER})\s*/\s*[0-9]+|(?:[0-9]+\s*)?\\[dt]?frac\s*(?:\{{[0-9]+\}}\s*\{{[0-9]+\}}|[0-9]\s?[0-9])"
_SINGLE_NUMBER = re.compile(rf"\s*(?:-?\\?\$\s*)?[-+]?(?:{_FRACTION}|{_NUMBER})\s*")
_LABELLED = re.compile(
    rf"(?P<text>\\(?:text|mbox|textbf|textrm|mathrm)\s*\{{)?(?P<number>{_SINGLE_NUMBER.pattern})"
    r"(?<=[\s}])(?P<words>[A-Za-z]+(?:[ ./-]{1,2}[A-Za-z]+)*\.?)\s*(?(text)\})"
)
_SIGN = "|".join(re.escape(sign) for sign in _CURRENCIES) + r"|\\text\s*\{\s*(?:[€£¥₹¢]|\\?\$|\\pounds|\\euro)\s*\}"
_PRICE = re.compile(
    rf"(?:(?P<minus>-?)(?P<before>{_SIGN})\s*)?(?P<number>{_SINGLE_NUMBER.pattern})(?P<behind>{_SIGN})?\s*"
)
# Words that change the value of the number before them.
_CALCULATES = re.compile(
    r"\b(?:hundreds?|thousands?|[mb]illions?|trillions?|dozens?|hal(?:f|ves)|thirds?|fourths?|fifths?|squared|cubed|"
    r"or|and|not|but|plus|minus|times|over|by|to|than|least|most|mod|choose|factorial|base|percentage|pct|"
    r"pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|inf|infinity|frac|max|min|gcd|lcm)\b"
)
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"

Unit = frozenset[tuple[str, int]]  # canonical names with their powers
_DOLLAR: Unit = frozenset({("dollar", 1)})
_PERCENT: Unit = frozenset({("percent", 1)})  # Math-Verify divides the number by 100


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of an answer that would be dropped."""

    text: str  # as written, without spaces
    is_label: bool  # whether it names a unit or the things counted, so that it can be dropped
    unit: Unit | None = None  # if it is known


NO_TAIL = Tail("", True)


def read_tail(quantity: str, tail: str) -> Tail:
    """Classify the tail that Math-Verify drops from a quantity."""
    written = "".join(tail.split())
    if not written:
        return NO_TAIL
    if not re.search(r"[^/.\s]", _GROUP.sub("", tail)):
        words = _GROUP.sub(lambda group: group["words"] + (f"^{group['power']}" if group["power"] else ""), tail)
        unit = find_unit(words)
        return Tail(written, unit is not None or not _NOT_A_LABEL.search(words), unit)
    if (bare := _BARE.fullmatch(tail)) and _is_numeric(quantity):
        unit = find_unit(bare["words"])
        # `2s` and `15 + 55 m` are expressions, `2 s` are two seconds; `3 students` are three, whatever they are.
        is_letter = len(bare["words"].strip()) == 1
        spaced_number = bool(bare["space"]) and bool(_SINGLE_NUMBER.fullmatch(quantity))
        return Tail(written, spaced_number and unit is not None if is_letter else True, unit)
    return Tail(written, False)


def split_label(latex: str) -> tuple[str, Tail] | None:
    r"""A single number and the words behind it, if they name what is counted: `18 dollars`, `\text{3 red eggs}`, `18€`.

    None where the words may be mathematics: `18 xyz`, `2 sin x`, `5 or six`, `3 million`, `10 percent`.
    """
    price = _PRICE.fullmatch(latex)
    if price and "$" not in price["number"] and (price["before"] is None) != (price["behind"] is None):
        currency = _CURRENCIES[re.sub(r"\\text|[{}\s]", "", price["before"] or price["behind"])]
        return (price["minus"] or "") + price["number"].strip(), Tail("", True, frozenset({(currency, 1)}))
    found = _LABELLED.fullmatch(latex)
    if found is None:
        return None
    words = found["words"].lower()
    unit = find_unit(words)
    if unit == _PERCENT or (unit is None and (_CALCULATES.search(words) or not _is_word(words.split()[0]))):
        return None
    if "$" in found["number"]:
        unit = _DOLLAR
    return found["number"].strip(), Tail("".join(words.split()), True, unit)


def _is_word(letters: str) -> bool:
    """Whether letters are a word and not a product: at least three, and not consecutive in the alphabet."""
    return len(letters) >= 3 and letters not in _ALPHABET


def read_symbol(latex: str) -> Tail:
    """The unit of a sign, where there is only one."""
    named = [unit for sign, unit in _SIGNS.items() if sign in latex]
    return Tail("", True, frozenset({(named[0], 1)})) if len(named) == 1 else NO_TAIL


def find_unit(words: str) -> Unit | None:
    """Canonical form of a unit: `square feet` and `ft^2` are foot to the second, `m/s` is meter per second."""
    phrase = words.lower().replace(".", "").replace(r"\%", "percent").strip()
    phrase = _COMPOUND.get(phrase, phrase).replace("/", " per ")
    found: dict[str, int] = {}
    sign = factor = 1
    for word in re.sub(r"\s*\^\s*", "^", phrase).split():
        name, _, power = word.partition("^")
        if name == "per":
            sign = -1
        elif name in ("squared", "cubed") and found:
            found[next(reversed(found))] *= _POWER[name]
        elif name in _POWER:
            factor = _POWER[name]
        elif name in _UNITS and power in ("", "1", "2", "3"):
            found[_UNITS[name]] = sign * factor * int(power or 1)
            factor = 1
        else:
            return None
    return frozenset(found.items()) or None


def differ(reference: Tail, answer: Tail) -> bool:
    """Whether both have a unit, and not the same."""
    return None not in (reference.unit, answer.unit) and reference.unit != answer.unit


def _is_numeric(quantity: str) -> bool:
    """Whether a quantity has no letters outside commands, so that a word behind it is not a factor."""
    return not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", quantity)) and bool(re.search(r"[0-9]", quantity))
