"""Notation that Math-Verify cannot read, rewritten as LaTeX: characters, typesetting, and the notation of programs."""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")

# NFKC keeps these characters, or takes their meaning away (`½` would be 1⁄2 and `3½` 31⁄2).
_REPLACED = {
    **dict.fromkeys("\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{MINUS SIGN}", "-"),
    **dict.fromkeys("\N{FRACTION SLASH}\N{DIVISION SLASH}", "/"),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("⩽≦", r"\le "),
    **dict.fromkeys("⩾≧", r"\ge "),
    "∞": r"\infty ",
    "°": r"^\circ ",
}


def plain_characters(text: str) -> str:
    r"""Replace characters outside ASCII that have a plain form, and remove invisible ones.

    >>> plain_characters("x² ≤ ３½")
    'x^2 ≤ 3\\frac{1}{2}'
    """
    if text.isascii():
        return text
    text = _RAISED.sub(lambda run: "^" + _group(run[0], _SUPERSCRIPTS), text)
    text = _LOWERED.sub(lambda run: "_" + _group(run[0], _SUBSCRIPTS), text)
    return unicodedata.normalize("NFKC", "".join(map(_plain, text)))


def _group(run: str, plain: dict[str, str]) -> str:
    characters = "".join(plain[character] for character in run)
    return characters if len(characters) == 1 else f"{{{characters}}}"


def _plain(character: str) -> str:
    """Return what a character means in ASCII or LaTeX, itself if that is not known."""
    if character.isascii():
        return character
    if character in _REPLACED:
        return _REPLACED[character]
    if unicodedata.category(character) == "Cf":  # zero-width spaces, soft hyphens, marks of direction
        return ""
    if unicodedata.decomposition(character).startswith("<fraction>"):
        top, _, bottom = unicodedata.normalize("NFKC", character).partition("\N{FRACTION SLASH}")
        return rf"\frac{{{top}}}{{{bottom}}}" if bottom else character
    return character


_SIZES = (
    "tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge|displaystyle|textstyle|scriptstyle|"
    "limits|[bB]igg?[lrm]?"
)
_TYPESETTING = (
    # `\textcolor{blue}{6}` and `{\color{blue} 6}`
    (re.compile(r"\\(?:textcolor|colorbox|color)\s*(?:\[[^\[\]]*\]\s*)?\{[^{}]*\}\s*"), ""),
    # A group remains: `\underline{x+1}` is `{x+1}`.
    (re.compile(r"\\(?:underline|uline|boldsymbol|pmb|bm)\s*(?=\{)"), ""),
    (re.compile(rf"\\(?:{_SIZES})(?![A-Za-z])\s*"), ""),
    # Letters stay bold, as `\mathbf{R}` and `\textbf{no}`.
    (re.compile(r"\\(?:textbf|mathbf)\s*(?=\{[^{}A-Za-z]*\})"), ""),
    (re.compile(r"\\(?:nicefrac|sfrac|cfrac)(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\varnothing(?![A-Za-z])|∅"), r"\\emptyset "),
    (re.compile(r"\{(?P<n>[^{}\\]*)\\choose(?![A-Za-z])(?P<k>[^{}\\]*)\}"), r"\\binom{\g<n>}{\g<k>}"),
    (re.compile(r"\A(?P<n>[^{}\\]*)\\choose(?![A-Za-z])(?P<k>[^{}\\]*)\Z"), r"\\binom{\g<n>}{\g<k>}"),
)
_MARKDOWN = re.compile(r"\*\*(?P<answer>[^*]+)\*\*")
_INTRODUCTION = re.compile(
    r"(?:\\(?:approx|simeq|therefore|Rightarrow|implies)(?![A-Za-z])|∴|≈|⇒|=(?!=)|"
    r"\\(?:text|textbf|textrm|mbox)\s*\{\s*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*:?\s*\}\s*:?|"
    r"(?:the\s+)?(?:final\s+)?answer(?:\s+is\b\s*:?|\s*:))\s*",
    re.IGNORECASE,
)


def without_typesetting(text: str) -> str:
    r"""Remove colour, weight, size and introductions.

    >>> without_typesetting(r"\approx \textcolor{blue}{\nicefrac{1}{2}}")
    '{\\frac{1}{2}}'
    """
    text = text.strip()
    markdown = _MARKDOWN.fullmatch(text)
    if markdown:
        text = markdown["answer"]
    if "\\" in text or "∅" in text:
        for pattern, replacement in _TYPESETTING:
            text = pattern.sub(replacement, text)
    introduction = _INTRODUCTION.match(text)
    if introduction and introduction.end() < len(text):
        text = text[introduction.end() :]
    return text


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
