"""Normalisation of reference and answer before Math-Verify parses them: notation changes, the meaning does not.

All patterns match in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import gcd

from g2d.verifier.extraction import BOX
from g2d.verifier.notation import BRACED, as_latex, in_one_way, plain_characters
from g2d.verifier.units import NUMBER

_PLAIN = re.compile(r"-?[0-9]+(?:[,.][0-9]+)*|-?\\frac\{-?[0-9]+\}\{-?[0-9]+\}")
_SPACE = r"(?:\s|~|\\[,;:!> ])"


# Normalisation peels first: endings, boxes and introductions such as "x =" are removed until nothing changes. Then each
# rule of `_RULES` rewrites one notation (units, thousands, mixed numbers, ...). A rule must keep the value: an answer
# that means something else must stay different. `benchmarks/verdicts.py` counts what each change accepts, rightly and
# wrongly, on all references of MATH and GSM8K.


def normalise(answer: str) -> str:
    r"""Normalise an answer for parsing.

    >>> normalise(r"\boxed{\bigl(12\,345, 2\mathrm{i}\bigr)}.")
    '(12345, 2 i)'
    """
    if _PLAIN.fullmatch(answer):
        return answer
    text = re.sub(r"(?:\s|~(?!=))+", " ", plain_characters(answer))  # patterns take seconds on long runs of space
    before = None
    while text != before:
        before = text
        text = without_introduction(in_one_way(unwrap(without_ending(text))))
    text = _INNER_BOX.sub(without_inner_box, text)
    for rule in _RULES:
        text = rule(text)
    return re.sub(r"\s+", " ", text).strip()


_ENDING = re.compile(
    r"(?:\s|[,;~]|(?<!\.)(?<!\\right)\.|\\[,;:!> ]|\\\\|\\(?:q?quad|blacksquare|square|Box|qed|checkmark)(?![A-Za-z])|"
    r"<\|[A-Za-z_▁]{1,40}\|>|</s>|<eos>|<end_of_turn>)\Z"
)


def without_ending(text: str) -> str:
    r"""`5.`, `5 \;;` and `5<|im_end|>` are 5, and `\text{yes.}` is `\text{yes}`; `1, 2, ...` stays."""
    while ending := _ENDING.search(text, max(len(text) - 50, 0)):
        text = text[: ending.start()]
    return re.sub(r"(?<=[A-Za-z])[.,;]\}\Z", "}", text)


_WRAPPED = re.compile(
    rf"(?:{BOX})?(?P<braces>{BRACED})|\\\((?P<round>(?:(?!\\\)).)+)\\\)|\\\[(?P<square>(?:(?!\\\]).)+)\\\]|"
    r"\$(?P<dollars>[^$]+)\$|\*\*(?P<bold>[^*]+)\*\*",
    re.DOTALL,
)


def unwrap(text: str) -> str:
    r"""Remove a box, braces or `\(...\)` around the whole answer: Math-Verify reads `{5}` as a set."""
    while wrapped := _WRAPPED.fullmatch(text.strip()):
        text = wrapped["braces"][1:-1] if wrapped["braces"] else wrapped[wrapped.lastgroup or 0]
    return text.strip()


_INTRODUCTION = re.compile(
    r"(?:\\(?:approx|therefore|Rightarrow|implies)(?![A-Za-z])|∴|⇒|=(?!=))\s*|"
    r"(?P<text>\\text\s*\{)?\s*(?:(?:the\s+)?(?:final\s+)?answer\s*(?:is\b\s*:?|:|(?(text)(?=\})|(?!)))|"
    r"(?:option|choice)\s*:?(?=[\s}]\s*\(?[A-J]\b)|(?:it|they)\s+(?:is|are)\b|"
    r"(?:(?:an?|the)\s+)++(?=(?-i:[A-Za-z][a-z]{2,}[a-z -]*\}?\Z)))\s*",
    re.IGNORECASE,
)


def without_introduction(text: str) -> str:
    r"""`\approx 6.28`, `\text{Answer: B}`, `Option B` and `a circle` are 6.28, `\text{B}`, B and `circle`."""
    introduction = _INTRODUCTION.match(text)
    if introduction is None or introduction.end() == len(text):
        return text
    return (introduction["text"] or "") + text[introduction.end() :]


_INNER_BOX = re.compile(rf"(?P<command>(?:[_^]|\\[A-Za-z]+)\s*)?{BOX}(?P<content>{BRACED})?")


def without_inner_box(box: re.Match[str]) -> str:
    r"""Replace an inner box by its grouped content: `x=\boxed{3}` is `x= 3`, `2\boxed{a+b}` is `2(a+b)`."""
    if box["command"] or not box["content"]:
        return (box["command"] or "") + (box["content"] or "")
    content = box["content"][1:-1]
    is_sum = re.search(r"[^\s+-]\s*[+-]", content) and not re.search(r"[,;=<>]|\\(?:[lg]e|ne|[lg]t|in)", content)
    return f"({content})" if is_sum else f" {content} "


def _as_fraction(decimal: re.Match[str]) -> str:
    """Write a repeating decimal as a fraction; in `0.1\\overline{6}` `once` is 1, and `repeated` is 6."""
    once = decimal["once"]
    repeated = decimal["digits"] or decimal["digit"]
    nines = 10 ** len(repeated) - 1
    before = int((decimal["whole"] + once) or "0")
    value = Fraction(before * nines + int(repeated), 10 ** len(once) * nines)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _as_mixed_number(mixed: re.Match[str]) -> str:
    if int(mixed["top"]) >= int(mixed["bottom"]):
        return mixed[0]
    return rf"{mixed['before']}{mixed['whole']}\frac{{{mixed['top']}}}{{{mixed['bottom']}}}"


_POWERS_OF_TEN = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}


def _as_number(match: re.Match[str]) -> str:
    number = Decimal(match["number"].replace(",", "")) * _POWERS_OF_TEN[match["power"].lower()]
    return f"{match['sign']}{number.normalize():f}{'' if match['end'] else match['opening'] or ''}"


def _as_tuple(ratio: re.Match[str]) -> str:
    """Write `2:4:6` as `(1,2,3)`: Math-Verify divides."""
    parts = [int(part) for part in re.findall("[0-9]+", ratio[0])]
    divisor = gcd(*parts) or 1
    return f"({','.join(str(part // divisor) for part in parts)})"


def _as_binomial(choice: re.Match[str]) -> str:
    first, second = [number for number in choice.groups() if number]
    if first.isdigit() and second.isdigit() and int(first) < int(second):
        first, second = second, first
    return rf"\binom{{{first}}}{{{second}}}"


_INTERVAL = r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]"
_OR = r"(?:,|\\text\s*\{[\s,]*(?:and|or)\s*\}|and|or|\\lor|\\vee)"
_INTERVALS = re.compile(rf"(?:{_INTERVAL}\s*{_OR}\s*)+{_INTERVAL}")
_SET_BUILDER = re.compile(
    r"(?:\\left)?\\\{\s*(?P<letter>[A-Za-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\mid|\\vert|\\colon|[:|])"
    r"(?=.*(?<![A-Za-z\\])(?P=letter)(?![A-Za-z]))(?P<condition>(?:[^{}|:]|\{[^{}]*\})*?)(?:\\right)?\\\}"
)
_REALS = re.compile(
    r"(?:\\mathbb\{R\}|(?:x is )?(?:the set of )?(?:all|any) real(?:s| numbers?)(?: x)?)"
    r"(?: ?(?:\\setminus|-|,? ?except(?: for)?|other than|but) ?(?:x ?= ?)?(?:\\\{)?(?P<gaps>[^{}]+?)(?:\\\})?)?"
)


def with_sets_as_relations(text: str) -> str:
    r"""Write `\{x \mid x \leq 3\}` as `x \leq 3`, and `\mathbb{R} \setminus \{2\}` as `x \neq 2`."""
    builder = _SET_BUILDER.fullmatch(text)
    if builder and re.search(r"[<>]|\\(?:[lg]eq|neq|[lg]t)(?![A-Za-z])", builder["condition"]):
        return builder["condition"].strip()
    if _INTERVALS.fullmatch(text) and re.search(r"\\infty|[\[\]]", text):
        return re.sub(rf"(?<=[)\]])\s*{_OR}\s*(?=[(\[])", r" \\cup ", text)
    reals = _REALS.fullmatch(" ".join(re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).split()))
    if reals is None:
        return text
    gaps = re.split(r"\s*(?:,|and\b)\s*", reals["gaps"] or "")
    return r"\text{ and }".join(rf"x \neq {gap.strip()}" for gap in gaps if gap) or r"\mathbb{R}"


_THOUSANDS = re.compile(r"(?<![0-9,.])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9]|,[0-9])")


def without_commas_in_lists(text: str) -> str:
    """Write `1,000 and 2,000` as `1000 and 2000`: Math-Verify reads each comma of a list as a separator."""
    is_list = re.search(r",\s|;|\b(?:and|or)\b", text)
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text) if is_list else text


def _as_sum(fraction: re.Match[str]) -> str:
    first, second, below = fraction.group("first", "second", "below")
    start = rf"\frac{{{first}}}{below}" if first.strip() else ""
    return rf"{fraction['before']}{start} \pm \frac{{{second}}}{below}"


_WORD = r"\\text\s*\{{\s*(?P<{0}>[A-Za-z]+)\s*\}}(?P<{0}_power>\^[23])?"
_GROUP = rf"(?:{_SPACE}[0-9]{{3}})"
_N = r"\{?([0-9]+|[a-z])\}?"


def _rule(pattern: str, replacement: str | Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    return partial(re.compile(pattern).sub, replacement)


_RULES: tuple[Callable[[str], str], ...] = (
    as_latex,
    # Degrees: `65^{\text{o}}`, `65{}^\circ`, `65^\circ C`.
    _rule(
        r"(?<=[0-9}])\s*(?:\{ ?\})? ?\^ ?(?P<b>\{ ?)?(?:\\text\{ ?o ?\}|o|\^?\\circ)(?![A-Za-z])(?(b) ?\})", r"^\\circ"
    ),
    _rule(r"\^\\circ\s*(?P<text>\\text\s*\{\s*)?(?P<scale>[CF])(?(text)\s*\})(?![A-Za-z])", r"\\text{ deg\g<scale>}"),
    # `\text{4:30 p.m.}`, `70 \text{ thousand}`
    _rule(r"\A\\text ?\{ ?(?P<n>-?(?:\\?\$)?[0-9][0-9.,:/]*)(?P<words>[A-Za-z .%\\]*)\}\Z", r"\g<n>\\text{\g<words>}"),
    _rule(
        r"(?i)\A(?P<sign>-?(?:\\?\$)?\s*)(?P<number>[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?)\s*(?P<opening>\\text\s*\{)?\s*"
        r"(?P<power>hundred|thousand|million|billion)(?:\s*(?P<end>\})?\Z|(?=\s+[a-z]+\s*\}?\Z))",
        _as_number,
    ),
    # Ordinals and units: `26^{\text{th}}`, `5 \frac{\text{m}}{\text{s}}`, `40 cm^2`
    _rule(r"(?<=[0-9])\s*\^\s*(?:\{?\s*\\text\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\}?|\{\s*(?:st|nd|rd|th)\s*\})", ""),
    _rule(
        rf"(?<=[0-9}}])(?P<space>\s*)\\frac\s*\{{\s*{_WORD.format('top')}\s*\}}\s*\{{\s*{_WORD.format('bottom')}\s*\}}",
        r"\g<space>\\text{ \g<top>\g<top_power>/\g<bottom>\g<bottom_power>}",
    ),
    _rule(
        rf"\A({NUMBER}){_SPACE}*((?<=[ ;:,>])m|[cmk]m|ft|in|yd|mi) ?\^ ?(\{{)?([23])(?(3)\}})\Z", r"\1\\text{ \2^\4}"
    ),
    # `(64)_9` is `64_9`.
    _rule(r"(?<![A-Za-z0-9\\])\((?P<digits>[0-9A-F]+)\)(?=_)", r"\g<digits>"),
    # Choices and logarithms: `{}_{10}C_3`, `C(10,3)`, `10 \choose 3`, `\log_e`.
    _rule(
        rf"(?:\{{\s*\}})?\s*[_^]\s*{_N}\s*(?:C|\\text\s*\{{C\}})\s*_\s*{_N}|"
        rf"(?<![A-Za-z\\])n?Cr?\({_N}\s*,\s*{_N}\)|(?<![A-Za-z\\])C_{_N}\^{_N}|(?<![A-Za-z\\])C\^{_N}_{_N}|"
        r"\{([^{}\\]*)\\choose(?![A-Za-z])([^{}\\]*)\}|\A([^{}\\]*)\\choose(?![A-Za-z])([^{}\\]*)\Z",
        _as_binomial,
    ),
    _rule(r"\\log\s*_\s*(?:e(?![A-Za-z])|\{\s*e\s*\})", r"\\ln "),
    _rule(r"(?i)\\text\s*\{\s*inf(?:inity)?\s*\}|(?<![A-Za-z\\])inf(?:inity)?(?![A-Za-z])", r"\\infty "),
    _rule(r"(?<![A-Za-z\\])(?:[dt]?frac(?=\s*\{)|pi(?![A-Za-z]))", r"\\\g<0>"),
    # `50\text{ percent}` and `50 per cent`: Math-Verify drops the word without dividing by 100.
    _rule(r"\s*(?:\\text ?\{ ?(?:\\?%|per ?cents?) ?\}|(?<![A-Za-z])per ?cents?)(?=\s*(?:\Z|[,;)\]}]))", r"\\%"),
    # `\frac{3\pm\sqrt5}{2}` and `(3\pm\sqrt5)/2`: Math-Verify reads `\pm` only outside fractions.
    _rule(r"\((?P<sum>[^()]*\\pm[^()]*)\)\s*/\s*(?P<below>[0-9]+)", r"\\frac{\g<sum>}{\g<below>}"),
    _rule(
        rf"(?P<before>(?:\A|[,;={{(])\s*-?\s*)\\frac\s*\{{(?P<first>(?:[^{{}}]|{BRACED})*?)\\pm"
        rf"(?P<second>(?:[^{{}}+-]|{BRACED})+)\}}\s*(?P<below>{BRACED}|[0-9])(?=\s*(?:\Z|[,;)}}]|\\\}}))",
        _as_sum,
    ),
    # `0.\overline{6}` is `\frac{2}{3}`, and `3 1/2` is `3\frac{1}{2}`.
    _rule(
        r"(?<![0-9.])(?P<whole>[0-9]*)\.(?P<once>[0-9]*)\\(?:overline|bar|dot)\s*"
        r"(?:\{(?P<digits>[0-9]{1,40})\}|(?P<digit>[0-9]))(?![0-9_^.{]|\\(?:overline|bar|dot))",
        _as_fraction,
    ),
    _rule(
        rf"(?P<before>(?:\A|[-+=(\[{{;<>$,])\s*)(?P<whole>[0-9]+){_SPACE}+(?P<top>[0-9]+)\s*/\s*(?P<bottom>[0-9]+)"
        r"(?=\s*(?:\Z|[])},;<>=$%]|\\(?:[%$,;]|text|right))|\s+[A-Za-z])",
        _as_mixed_number,
    ),
    # `12,\!345` and `12{,}345` are `12,345`, and `8, \text{and} 10` has no comma inside its text.
    _rule(r"(?<![0-9])[0-9]{1,3}(?:\s?,\s?\\!\s?[0-9]{3})+(?![0-9])", lambda groups: re.sub(r"\s", "", groups[0])),
    _rule(r",\\!|\{,\}", ","),
    _rule(r"\\text\s*\{\s*,\s*(?=and|or)", r", \\text{ "),
    # Math-Verify multiplies or adds the groups of `12\,345` and `12 345`. They are joined in a number that is a term,
    # so not in `\frac 1 234`, `x^2 345` and `3 100/101`.
    _rule(
        rf"(?P<before>(?:\A|[-+=(\[{{;<>$]|,\s){_SPACE}{{0,3}})"
        rf"(?P<number>[1-9][0-9]{{0,2}}{_GROUP}+)(?![0-9/]|{_SPACE}*[0-9/])",
        lambda match: match["before"] + re.sub(_SPACE, "", match["number"]),
    ),
    without_commas_in_lists,
    with_sets_as_relations,
    # Ratios of three, and remainders: Math-Verify divides and multiplies their numbers.
    _rule(r"\A[0-9]+(?:\s*(?:\\!)?(?::|\\colon)\s*(?:\\!)?[0-9]+){2,}(?=\s*(?:\Z|\\text))", _as_tuple),
    _rule(
        r"(?i)(?<=[0-9]) ?(?P<b>\\text ?\{ ?)?(?:with )?(?:a )?r(?:em(?:ainder)?)?\.? ?(?(b)\}) ?(?=[0-9])",
        r"\\text{ R }",
    ),
    # `\sqrt7 (\approx 2.65)`
    _rule(r"\\text\s*\{\s*(?P<open>\(?)(?:approximately|about|roughly|approx\.?)\s*\}", r"\g<open>\\approx "),
    _rule(r"\s*(?:\\[ ,;])?\s*\(\s*\\approx(?P<value>[^()]*)\)\Z", r" \\approx\g<value>"),
    # Math-Verify reads complex numbers only with a separate i.
    _rule(r"\\(?:text|operatorname)\s*\{\s*(?P<letter>[ie])\s*\}", r" \g<letter> "),
    _rule(r"(?<![A-Za-z\\])(?P<factor>[0-9]|[abcdxyz])i(?![A-Za-z])", r"\g<factor> i"),
)
