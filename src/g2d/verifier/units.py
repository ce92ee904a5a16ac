r"""Units at the end of an answer, recognised only if they are certain.

Math-Verify drops trailing units, also single letters and common words: `2s` becomes 2, `a + b + c` becomes `a +`,
`5\text{ or six}` becomes 5, and 10 cm equals 10 m.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from g2d.verifier.statements import GREEK

_NAMES = """
    meter m metre / centimeter cm centimetre / millimeter mm millimetre / kilometer km kilometre / inch in /
    foot ft feet / yard yd / mile mi / acre / hectare / liter l litre / milliliter ml millilitre / gallon gal /
    quart qt / pint / cup / gram g / kilogram kg / milligram mg / ounce oz / pound lb / ton tonne /
    second s sec / minute min / hour h hr / day / week / month / year yr / decade / century centuries /
    cent penny pennies ¢ / dollar usd buck / euro eur / gbp / yen jpy / rupee inr rs /
    degree deg / degc celsius / degf fahrenheit / radian rad / am / pm / percent
"""  # the first name of a unit is its canonical one
_UNITS = {"inches": "inch"}
for _aliases in _NAMES.split("/"):
    for _alias in _aliases.split():
        _UNITS[_alias] = _UNITS[f"{_alias}s"] = _aliases.split()[0]
_COMPOUND = {"mph": "mile per hour", "kmh": "km per hour", "kmph": "km per hour"}
_POWER_BEFORE = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWER_BEHIND = {"squared": 2, "cubed": 3}
_ABBREVIATES = re.compile("(?<![A-Za-z])(?:M|MM|G)(?![A-Za-z])")  # million or grand, not metres or grams

_SIGNS = {r"\$": "dollar", r"\circ": "degree", "°": "degree", "%": "percent"}
_CURRENCIES = {r"\$": "dollar", "$": "dollar", "€": "euro", r"\euro": "euro", "£": "gbp", r"\pounds": "gbp"}
_CURRENCIES |= {"¥": "yen", "₹": "rupee", "¢": "cent", r"US\$": "dollar", "US$": "dollar", "USD": "dollar"}
_CURRENCIES |= {"EUR": "euro", "GBP": "gbp", "JPY": "yen", "INR": "rupee", "Rs": "rupee"}

_GROUP = re.compile(r"\\text\s*\{(?P<words>(?:[^{}\\]|\\%)*)\}(?P<power>\^\{?[0-9]\}?)?")
_BARE = re.compile(r"(?P<space>\s?)(?P<words>[A-Za-z][A-Za-z .]*)")
NUMBER = r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_FRACTION = rf"(?:{NUMBER})\s*/\s*[0-9]+|(?:[0-9]+\s*)?\\[dt]?frac\s*(?:\{{[0-9]+\}}\s*\{{[0-9]+\}}|[0-9]\s?[0-9])"
_SINGLE_NUMBER = re.compile(rf"\s*(?:-?\\?\$\s*)?[-+]?(?:{_FRACTION}|{NUMBER})\s*")
_LABELLED = re.compile(
    rf"(?P<text>\\text\s*\{{)?(?P<number>{_SINGLE_NUMBER.pattern})"
    r"(?<=[\s}])(?P<words>[A-Za-z]+(?:[ ./-]{1,2}[A-Za-z]+)*\.?)\s*(?(text)\})"
)
_SIGN = rf"(?:\\text\s*\{{\s*)?(?:{'|'.join(map(re.escape, _CURRENCIES))})\.?\s*\}}?"
_PRICE = re.compile(
    rf"(?:(?P<minus>-?)(?P<before>{_SIGN})\s*)?(?P<number>{_SINGLE_NUMBER.pattern})(?P<behind>{_SIGN})?\s*"
)
_CARDINAL = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    "(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|[a-z]*illi(?:on|ard)"
)
_PART = "hal(?:f|ves)|quarter|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth"
_CALCULATES = re.compile(
    rf"\b(?:(?:{_CARDINAL})(?:e?s|th|ths)?|(?:{_PART})s?|[a-z]+tieths?|lakhs?|lacs?|crores?|myriads?|googol[a-z]*|"
    r"dozens?|doz|gross|score|thou|grand|mil|mill|mio|mln|kilo|mega|giga|micro|nano|permil(?:le)?|mille|basis|"
    r"percent(?:age)?|pct|squared|cubed|roots? of|root|power|exponent|factorial|choose|mod|modulo|base|binary|ternary|"
    r"octal|hex(?:adecimal)?|doubled|tripled|trebled|quadrupled|halved|twice|thrice|negated|inverse|inverted|"
    r"reciprocal|negative$|or|and|not|but|plus|minus|less|fewer|times (?:more|less|fewer)|"
    r"times (?!as |a |per |more )(?=\S)|divided|over|by|to|than|least|"
    r"most|(?:a|arc)?(?:sin|cos|tan|cot|sec|csc|cosec)h?|sine|cosine|tangent|log|logarithm|exp|sqrt|max|min|gcd|lcm|"
    rf"inf|infinit[a-z]*|undefined|nan|frac|pi|(?:{GREEK.casefold()}))(?![a-z])"
)
_NO_LETTERS = re.compile(r"[^\w\s.'’()%°-]|[0-9_\u0370-\u03ff百千万萬亿億兆半倍]")
_SHORT = re.compile("(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])")
_SHORT_WORDS = frozenset(["a", "an", "as", "of", "in", "on", "at", "is", "no", "st", "nd", "rd", "th"])
_COUNTED = re.compile(r"\b(?:(?:sq|cu)\.? )?units?(?:\^[23])?(?![a-z^])", re.IGNORECASE)  # of any area or volume
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"

Unit = frozenset[tuple[str, int]]  # canonical names with their powers
_DOLLAR: Unit = frozenset({("dollar", 1)})
_PERCENT: Unit = frozenset({("percent", 1)})  # Math-Verify divides the number by 100


@dataclass(frozen=True, slots=True)
class Tail:
    is_label: bool = True  # it names a unit or the things counted, and can be dropped
    unit: Unit | None = None


def read_tail(quantity: str, tail: str, is_price: bool) -> Tail:
    """Read the words behind a quantity as a unit or label, if they are certain to be one."""
    if not tail.strip():
        return Tail()
    bare = _BARE.fullmatch(tail)
    if not re.search(r"[^/.\s]", _GROUP.sub("", tail)):  # only `\text`
        words = re.sub("[{}]", "", _GROUP.sub(r"\g<words>\g<power>", tail))
        # `\text{mil}\text{lion}` is one word, `\text{red}\text{eggs}` are two.
        spaced = _GROUP.sub(r" \g<words> ", tail)
        is_label = not changes_value(words) and not changes_value(spaced)
    elif bare and _is_numeric(quantity):
        # `2s` and `15 + 55 m` are expressions, `2 s` and `3 students` quantities.
        words = bare["words"]
        is_letter = len(words.strip()) == 1
        is_spaced_number = bool(bare["space"]) and bool(_SINGLE_NUMBER.fullmatch(quantity))
        is_label = not changes_value(words) and (is_spaced_number or not is_letter)
    else:
        return Tail(is_label=False)
    unit = find_unit(words)
    if is_price and not can_follow_price(unit):
        is_label = False
    return Tail(is_label, unit)


def changes_value(words: str) -> bool:
    """Return whether words may change the number before them: `million`, `squared`, `sin x`, `M`."""
    words = _COUNTED.sub("units", words)
    if find_unit(words) is not None:
        return False
    plain = unicodedata.normalize("NFKC", words)
    if _NO_LETTERS.search(plain) or _CALCULATES.search(" ".join(plain.casefold().split())):
        return True
    return any(short not in _SHORT_WORDS and find_unit(short) is None for short in _SHORT.findall(plain))


def can_follow_price(unit: Unit | None) -> bool:
    r"""Return whether a unit can follow a price: `\$5 per day` yes, the m of `\$5 m` no."""
    return unit is None or all(name == "dollar" or power < 0 for name, power in unit)


def split_label(latex: str) -> tuple[str, Tail] | None:
    r"""Split a single number from words that name the things counted: `18 dollars`, `\text{3 red eggs}`, `18€`.

    None if the words may be mathematics: `18 xyz`, `2 sin x`, `5 or six`, `3 million`, `10 percent`.
    """
    price = _PRICE.fullmatch(latex)
    if price and "$" not in price["number"] and (price["before"] is None) != (price["behind"] is None):
        sign = re.sub(r"\\text|[{}\s.]", "", price["before"] or price["behind"])
        number = (price["minus"] or "") + price["number"].strip()
        return number, Tail(unit=frozenset({(_CURRENCIES[sign], 1)}))
    labelled = _LABELLED.fullmatch(latex)
    if labelled is None:
        return None
    words = labelled["words"]
    unit = find_unit(words)
    if unit == _PERCENT:
        return None
    first = words.split()[0].lower()
    if unit is None and (changes_value(words) or len(first) < 3 or first in _ALPHABET):
        return None
    if "$" in labelled["number"]:
        if not can_follow_price(unit):
            return None
        unit = _DOLLAR
    return labelled["number"].strip(), Tail(unit=unit)


def read_symbol(latex: str) -> Tail:
    """Return the unit of the only sign in an answer: `\\$`, a degree sign or a percent sign."""
    named = [unit for sign, unit in _SIGNS.items() if sign in latex]
    return Tail(unit=frozenset({(named[0], 1)})) if len(named) == 1 else Tail()


def find_unit(words: str) -> Unit | None:
    """Return a unit's canonical form: `square feet` and `ft^2` are `{(foot, 2)}`."""
    if _ABBREVIATES.search(words):
        return None
    phrase = words.lower().replace(".", "").replace(r"\%", "percent").replace("per cent", "percent").strip()
    phrase = _COMPOUND.get(phrase, phrase).replace("/", " per ")
    powers: dict[str, int] = {}
    sign = factor = 1
    for word in re.sub(r"\s*\^\s*", "^", phrase).split():
        name, _, power = word.partition("^")
        if name == "per":
            sign = -1
        elif name in _POWER_BEHIND and powers:
            powers[next(reversed(powers))] *= _POWER_BEHIND[name]
        elif name in _POWER_BEFORE:
            factor = _POWER_BEFORE[name]
        elif name in _UNITS and power in ("", "1", "2", "3"):
            powers[_UNITS[name]] = sign * factor * int(power or 1)
            factor = 1
        else:
            return None
    return frozenset(powers.items()) or None


def differ(reference: Tail, answer: Tail) -> bool:
    if None in (reference.unit, answer.unit) or reference.unit == answer.unit:
        return False
    scales = {name for unit in (reference.unit, answer.unit) for name, _ in unit or ()}
    return scales not in ({"degree", "degc"}, {"degree", "degf"})


def _is_numeric(quantity: str) -> bool:
    """Return whether a quantity has digits and no letters outside commands."""
    has_letters = re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", quantity))
    return not has_letters and bool(re.search("[0-9]", quantity))
