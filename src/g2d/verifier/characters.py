"""Characters that mean what ASCII or LaTeX can write: full width, superscripts, vulgar fractions, dashes."""

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
