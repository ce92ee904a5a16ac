"""Normalisation of reference and answer before Math-Verify parses them: notation changes, the meaning does not.

All patterns match in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from g2d.verifier.extraction import BOX
from g2d.verifier.notation import as_latex, plain_characters, without_typesetting
from g2d.verifier.units import with_units_as_text

_PLAIN = re.compile(r"-?[0-9]+(?:[,.][0-9]+)*|-?\\frac\{-?[0-9]+\}\{-?[0-9]+\}")
_SPACE = r"(?:\s|~|\\[,;:!> ])"


def normalise(answer: str) -> str:
    r"""Normalise an answer for parsing.

    >>> normalise(r"\boxed{\bigl(12\,345, 2\mathrm{i}\bigr)}.")
    '(12345, 2 i)'
    """
    if _PLAIN.fullmatch(answer):
        return answer
    text = plain_characters(without_end_tokens(answer))
    before = ""
    while text != before:
        before = text
        text = without_typesetting(unwrap(without_final_punctuation(text)))
    text = without_inner_boxes(text)
    for rule in _RULES:
        text = rule(text)
    return re.sub(r"\s+", " ", text).strip()  # Math-Verify's patterns take seconds on long runs of space


_END_TOKEN = re.compile(r"(?:<[|｜][A-Za-z_▁]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>)\s*\Z")


def without_end_tokens(text: str) -> str:
    """Remove end-of-turn tokens that were decoded as text: `42<|im_end|>` is 42."""
    while text.rstrip().endswith(">"):
        token = _END_TOKEN.search(text, max(len(text) - 60, 0))
        if token is None:
            break
        text = text[: token.start()]
    return text


_BRACE = re.compile(r"\\[\s\S]|[{}]")
_WRAPPER = re.compile(rf"(?:{BOX})?\{{")
_INLINE = re.compile(r"\\\((?P<round>(?:(?!\\\)).)*)\\\)|\\\[(?P<square>(?:(?!\\\]).)*)\\\]", re.DOTALL)


def unwrap(text: str) -> str:
    r"""Remove a box, braces or `\(...\)` around the whole answer: Math-Verify reads `{5}` as a set."""
    text = text.strip()
    while True:
        opening = _WRAPPER.match(text)
        inline = _INLINE.fullmatch(text)
        if opening and _closing(text, opening.end()) == len(text) - 1:
            text = text[opening.end() : -1].strip()
        elif inline:
            text = (inline["round"] or inline["square"] or "").strip()
        else:
            return text


def _closing(text: str, start: int) -> int:
    """Return where the brace before `start` is closed, -1 if it is not."""
    depth = 1
    for match in _BRACE.finditer(text, start):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
        if depth == 0:
            return match.start()
    return -1


_BLANK = (r"\,", r"\;", r"\:", r"\!", "\\ ", r"\\")


def without_final_punctuation(text: str) -> str:
    r"""`5.`, `5,` and `5 \;;` are 5, and `\text{yes.}` is `\text{yes}`; `1, 2, ...` stays."""
    end = len(text)
    while end:
        last = text[end - 1]
        if text[end - 2 : end] in _BLANK:
            end -= 2
        elif (last in ".,;~" and text[end - 2 : end] != "..") or last.isspace():
            end -= 1
        else:
            break
    text = text[:end]
    return re.sub(r"(?<=[A-Za-z])[.,;]\}\Z", "}", text)


_BOX_OR_BRACE = re.compile(rf"(?P<box>{BOX}\{{?)|\\[\s\S]|[{{}}]")


def without_inner_boxes(text: str) -> str:
    r"""Replace inner boxes by their grouped content: `x=\boxed{3}` is `x=3`, `2\boxed{a+b}` is `2(a+b)`."""
    if "box" not in text:
        return text
    open_groups = [""]
    openings = [""]
    position = 0
    for match in _BOX_OR_BRACE.finditer(text):
        open_groups[-1] += text[position : match.start()]
        position = match.end()
        if match["box"] and not match["box"].endswith("{"):
            continue
        if match["box"] or match.group() == "{":
            open_groups.append("")
            openings.append(match.group())
        elif match.group() == "}" and len(open_groups) > 1:
            content = open_groups.pop()
            is_box = openings.pop() != "{"
            open_groups[-1] += _framed(open_groups[-1], content) if is_box else f"{{{content}}}"
        else:
            open_groups[-1] += match.group()
    open_groups[-1] += text[position:]
    return "{".join(open_groups)


def _framed(before: str, content: str) -> str:
    if re.search(r"(?:[_^]|\\[A-Za-z]+)\s*\Z", before[-40:]):
        return f"{{{content}}}"
    is_sum = re.search(r"[^\s+-][\s]*[+-]", content) and not re.search(r"[,;=<>]|\\(?:le|ge|ne|lt|gt|in)", content)
    return f"({content})" if is_sum else f" {content} "


_BARE_ROOT = re.compile(r"(?:(?<!\\)sqrt|√)\s*(?P<digits>[0-9]+(?:\.[0-9]+)?)?")
_ROOT_OR_BRACKET = re.compile(r"(?P<root>\\sqrt(?:\[[^\[\]]*\])?\s*)?\(|\)")


def with_braced_roots(text: str) -> str:
    if "√" not in text and "sqrt" not in text:
        return text
    text = _BARE_ROOT.sub(_as_root, text)
    written = list(text)
    opened: list[int | None] = []  # place of each open bracket of a root; None for other brackets
    for bracket in _ROOT_OR_BRACKET.finditer(text):
        if bracket["root"]:
            opened.append(bracket.end() - 1)
        elif bracket.group() == "(":
            opened.append(None)
        elif opened:
            opening = opened.pop()
            if opening is not None:
                written[opening] = "{"
                written[bracket.start()] = "}"
    return "".join(written)


def _as_root(bare: re.Match[str]) -> str:
    return rf"\sqrt{{{bare['digits']}}}" if bare["digits"] else r"\sqrt "


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


_RELATIONS = {"leqq": "leq", "geqq": "geq", "leqslant": "leq", "geqslant": "geq", "lneq": "lt", "gneq": "gt"}
_GROUP = rf"(?:{_SPACE}[0-9]{{3}})"


def _rule(pattern: str, replacement: str | Callable[[re.Match[str]], str], flags: int = 0) -> Callable[[str], str]:
    return partial(re.compile(pattern, flags).sub, replacement)


_RULES: tuple[Callable[[str], str], ...] = (
    _rule("~(?!=)", " "),
    as_latex,
    with_units_as_text,
    # `(64)_9` is `64_9`.
    _rule(r"(?<![A-Za-z0-9\\])\((?P<digits>[0-9A-F]+)\)(?=_)", r"\g<digits>"),
    # Math-Verify reads `x \leqq 3` as x <= 3q.
    _rule(rf"\\({'|'.join(_RELATIONS)})(?![A-Za-z])", lambda match: "\\" + _RELATIONS[match[1]]),
    _rule(
        r"\\(?:text|mathrm)\s*\{\s*inf(?:inity)?\s*\}|(?<![A-Za-z\\])inf(?:inity)?(?![A-Za-z])",
        r"\\infty ",
        re.IGNORECASE,
    ),
    _rule(r"(?<![A-Za-z\\])(?:[dt]?frac(?=\s*\{)|pi(?![A-Za-z]))", r"\\\g<0>"),
    # `50\text{ percent}` and `50 per cent`: Math-Verify drops the word without dividing by 100.
    _rule(
        r"(?<!\s)\s*(?:\\(?:text(?:rm|bf|it)?|mbox|mathrm)\s*\{\s*(?:\\?%|per\s?cents?)\s*\}|(?<![A-Za-z])per\s?cents?)"
        r"(?=\s*(?:\Z|[,;)\]}]))",
        r"\\%",
    ),
    # `\sqrt(3)`, `sqrt(3)`, `sqrt3` and `√3`; `\sqrt13` stays, since LaTeX reads it as `\sqrt{1}3`.
    with_braced_roots,
    # `0.\overline{6}` is `\frac{2}{3}`, and `3 1/2` is `3\frac{1}{2}`.
    _rule(
        r"(?<![0-9.])(?P<whole>[0-9]*)\.(?P<once>[0-9]*)\\(?:overline|bar|dot)\s*"
        r"(?:\{(?P<digits>[0-9]{1,40})\}|(?P<digit>[0-9]))(?![0-9_^.{]|\\(?:overline|bar|dot))",
        _as_fraction,
    ),
    _rule(
        rf"(?P<before>(?:\A|[-+=(\[{{;<>$,])\s*)(?P<whole>[0-9]+){_SPACE}+(?P<top>[0-9]+)\s*/\s*(?P<bottom>[0-9]+)"
        r"(?=\s*(?:\Z|[])},;<>=$%]|\\(?:[%$,;]|text|mbox|right))|\s+[A-Za-z])",
        _as_mixed_number,
    ),
    # `12,\!345` and `12{,}345` are `12,345`.
    _rule(r"(?<![0-9])[0-9]{1,3}(?:\s?,\s?\\!\s?[0-9]{3})+(?![0-9])", lambda groups: re.sub(r"\s", "", groups[0])),
    _rule(r",\\!", ","),
    _rule(r"\{,\}", ","),
    # Math-Verify multiplies or adds the groups of `12\,345` and `12 345`. They are joined in a number that is a term,
    # so not in `\frac 1 234`, `x^2 345` and `3 100/101`.
    _rule(
        rf"(?P<before>(?:\A|[-+=(\[{{;<>$]|,\s){_SPACE}{{0,3}})"
        rf"(?P<number>[1-9][0-9]{{0,2}}{_GROUP}+)(?![0-9/]|{_SPACE}*[0-9/])",
        lambda match: match["before"] + re.sub(_SPACE, "", match["number"]),
    ),
    # Math-Verify reads complex numbers only with a separate i.
    _rule(
        r"\\(?:mathrm|mathit|mathbf|mathsf|text|textrm|textit|operatorname)\s*\{\s*i\s*\}|\\imath(?![A-Za-z])", " i "
    ),
    _rule(r"(?<![A-Za-z\\])(?P<factor>[0-9]|[abcdxyz])i(?![A-Za-z])", r"\g<factor> i"),
)
