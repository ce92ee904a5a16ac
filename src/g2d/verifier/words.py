r"""Answers that are words, orderings of letters, or lists of them.

Math-Verify multiplies letters, so it finds `(E)(D)ACB` and `DAECB` equal. An answer is compared as a string if the
reference is

- a word: two or more letters inside `\text`, three or more in a row, or two or more capitals (`DAECB`, `B A`);
- a list of words or capitals. Its order counts in brackets, or with three or more members that are not in alphabetical
  order (`D, A, E`).

Two small letters (`ab`) and small letters separated by space (`x y z`) remain products.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|sc|normal)?|math(?:rm|bf|it|sf|tt)|mbox|operatorname|boldsymbol|bm)\s*\{([^{}]*)\}"
)
_LAYOUT = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\?[{}]")
_SPACE = re.compile(r"\\[,;:!> ]|\\q?quad(?![A-Za-z])|[~\s]")
_HYPHEN = re.compile("(?<=[A-Za-z]{2})-(?=[A-Za-z]{2})")
_COMMAND = re.compile(r"\\[A-Za-z]+")

_WORD = re.compile(r"\(?[A-Za-z](?:[A-Za-z .'’-]*[A-Za-z.])?(?: [0-9]+)?\)?")
_FUNCTION = re.compile(r"\b(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi|min|max|gcd|lcm|mod|or)\b")
_JOINT = re.compile(r"[,;&]|(?<=[\s,])and(?=\s)")
_BRACKETED = re.compile(r"[(\[][^()\[\]]*[)\]]")


@dataclass(frozen=True, slots=True)
class _Words:
    """Words of an answer; `letters`: an ordering of single capitals."""

    members: tuple[str, ...]
    ordered: bool
    letters: bool


def same_words(reference: str, answer: str) -> bool | None:
    """Return whether an answer is the reference's words; None if the reference has none."""
    expected = _read(reference)
    if expected is None:
        return None
    members = tuple(filter(None, map(_spelled, _JOINT.split(_plain(answer)))))
    if expected.letters:
        members = tuple("".join(members))
    if expected.ordered:
        return members == expected.members
    return Counter(members) == Counter(expected.members)


_CHOICE = re.compile(
    r"(?:\( ?(?P<framed>[A-J]) ?\)|(?P<bare>[A-J])(?: ?[).:])?)(?:(?<![A-J]) (?P<text>.+))?", re.DOTALL
)


_LABEL = re.compile(r"(?<![A-Za-z(])\(? ?([A-HJ]) ?[).:](?![A-Za-z0-9])")  # not in `P(A)`; `(I)` is a numeral
_NO_OPTION = re.compile(
    r"[/&]|(?:or|and|but)\b|is (?:wrong|incorrect|false|not (?:correct|right|true|the answer))\b",
    re.IGNORECASE,
)


def same_choice(reference: str, answer: str) -> bool:
    """Return whether one side is a letter and the other the same letter with its option's text: `(C) both fall`.

    An answer may neither name another letter (`(C) or (D)`) nor deny its own (`(C) is wrong`).
    """
    expected = _CHOICE.fullmatch(_plain(reference))
    answered = _CHOICE.fullmatch(_plain(answer))
    if expected is None or answered is None or (expected["text"] and answered["text"]):
        return False
    letter = answered["framed"] or answered["bare"]
    text = answered["text"] or ""
    if set(_LABEL.findall(text)) - {letter} or _NO_OPTION.match(text):
        return False
    return letter == (expected["framed"] or expected["bare"])


def letters_differ(reference: str, answer: str) -> bool:
    r"""Reject `E \cdot DACB` for `DAECB`: Math-Verify ignores the order of letters."""
    return _read(reference) is not None and _letters(reference) != _letters(answer)


@lru_cache(maxsize=4096)
def _read(reference: str) -> _Words | None:
    """Return a reference's words, None if it may be mathematics."""
    plain = _plain(reference)
    parts = [part.strip() for part in _JOINT.split(plain.strip("()[]"))]
    in_text = not re.search("[A-Za-z]", _TEXT.sub("", reference))
    if _FUNCTION.search(plain) or not all(_WORD.fullmatch(part) for part in parts):
        return None
    members = tuple(map(_spelled, parts))
    capitals = "".join(parts).isupper()
    if len(parts) == 1:
        if len(members[0]) == 1 or not (in_text or capitals or re.search("[A-Za-z]{3}", plain)):
            return None
        if capitals:
            return _Words(tuple(members[0]), ordered=True, letters=True)
        return _Words(members, ordered=True, letters=False)
    if not (in_text or capitals or all(len(member) > 2 for member in members)):
        return None
    unsorted = len(members) > 2 and list(members) != sorted(members)
    in_brackets = _BRACKETED.fullmatch(plain) is not None
    ordered = in_brackets or (unsorted and not reference.startswith(r"\{"))
    return _Words(members, ordered, letters=all(len(member) == 1 for member in members))


def _plain(latex: str) -> str:
    return " ".join(_SPACE.sub(" ", _LAYOUT.sub("", _without_text(latex))).split())


def _without_text(latex: str) -> str:
    """Remove `\\text{...}` and fonts around words, also nested ones."""
    before = None
    while latex != before:
        before = latex
        latex = _TEXT.sub(r" \1 ", latex)
    return latex


def _spelled(plain: str) -> str:
    return re.sub(r"[\s.()\[\]]", "", _HYPHEN.sub("", plain)).casefold()


def _letters(latex: str) -> str:
    return re.sub("[^a-z]", "", _COMMAND.sub("", _without_text(latex)).lower())
