r"""The answer of a completion: the content of its last `\boxed{...}`.

Only a terminated last box is an answer: text that was cut inside its last box has none, even after a complete earlier
box. Math-Verify's own extraction also accepts answers without a box and boxes without an end, so it is not used.
Linear in the length of the text, without recursion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# `\\boxed` is what remains of `\boxed` after one round of escaping too many; graders in use accept it.
BOX = r"\\{1,2}(?:boxed|fbox)(?![A-Za-z])\s*"
_TOKEN = re.compile(rf"(?P<box>{BOX})(?P<brace>{{)?|\\[\s\S]|[{{}}]")
_END_OF_MATH = re.compile(r"\\\)|\\\]|\\[\s\S]|(?P<end>[$\n])")


@dataclass(frozen=True, slots=True)
class Boxed:
    r"""The last box of a text. `terminated` is False when there is no box, or the text ends inside the last one."""

    content: str | None
    terminated: bool


NO_BOX = Boxed(None, False)


def find_last_boxed(text: str) -> Boxed:
    r"""The last `\boxed{...}` or `\fbox{...}`, by the position of its opening.

    Braces are balanced and `\{`, `\}` are not braces. A box inside a box belongs to the outer one:
    `\boxed{\boxed{5}}` holds `\boxed{5}`. A box without braces (`\boxed 5$`) reaches to the end of its formula, and
    is unterminated if the text ends first.
    """
    open_braces: list[int | None] = []  # where the content of a box starts; None for an ordinary brace
    last_opening = content_start = content_end = -1
    braced = False
    for match in _TOKEN.finditer(text, _first_box(text)):
        if match["box"] is not None:
            last_opening, braced = match.end(), match["brace"] is not None
            if braced:
                open_braces.append(last_opening)
        elif match.group() == "{":
            open_braces.append(None)
        elif match.group() == "}" and open_braces and (opening := open_braces.pop()) is not None:
            content_start, content_end = opening, match.start()
    if last_opening < 0:
        return NO_BOX
    # Boxes that close after the last opening enclose it, so the last one to close is the outermost.
    if content_end >= last_opening:
        return Boxed(text[content_start:content_end].strip(), True)
    return NO_BOX if braced else _unbraced(text, last_opening)


def last_boxed(text: str) -> str | None:
    r"""Content of the last terminated `\boxed{...}`; None if the last box is unterminated or there is none."""
    return find_last_boxed(text).content


def _first_box(text: str) -> int:
    """Where to start scanning: one character before the first command, for a doubled backslash."""
    found = [position for command in (r"\boxed", r"\fbox") if (position := text.find(command)) >= 0]
    return max(min(found, default=len(text)) - 1, 0)


def _unbraced(text: str, start: int) -> Boxed:
    for match in _END_OF_MATH.finditer(text, start):
        if match["end"] or match.group() in (r"\)", r"\]"):
            return Boxed(text[start : match.start()].strip(), True)
    return NO_BOX
