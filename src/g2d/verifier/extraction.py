r"""The answer of a completion: the content of its last `\boxed{...}` that holds something, if that is terminated.

Math-Verify's own extraction is not used: it accepts answers without a box and unterminated boxes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from decimal import Decimal

# `\\boxed` is `\boxed` with one escape too many; other graders accept it too.
BOX = r"\\{1,2}(?:boxed|fbox)(?![A-Za-z])\s*"
# A box without content, `\boxed{...}`, `\boxed{answer}`, and a mention: "inside \boxed as you asked", "`\boxed`".
_PLACEHOLDER = r"(?:\.{3}|…|\\[lc]?dots|(?:\\text\s*\{\s*)?(?:your |the )?(?:final )?answer(?: here)?\s*\}?)?"
_EMPTY = re.compile(
    rf"{BOX}(?:\{{\s*{_PLACEHOLDER}\s*\}}|(?=[A-Za-z]{{2,}}(?:[\s.,;:!?)]|\Z))|(?=[`'\".,:;!?)]))", re.IGNORECASE
)
_COMMAND = re.compile(r"\\(?:boxed|fbox)")
_TOKEN = re.compile(rf"(?P<box>{BOX})(?P<brace>{{)?|\\[\s\S]|[{{}}]")
_END_OF_MATH = re.compile(r"(?P<end>\\\)|\\\]|[$\n])|\\[\s\S]")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` or `\fbox{...}`; None without one or if the text ends inside it.

    Boxes that hold nothing, and mentions of the command, do not count beside a box that holds something. The last box
    is the one that opens last. A nested box is part of the outer one: `\boxed{\boxed{5}}` holds `\boxed{5}`, and
    `\boxed{1 \boxed{5}` is unterminated. An open box ends with its formula or line. A box without braces (`\boxed 5$`)
    extends to the end of its formula and is unterminated if the text ends first. Linear time.
    """
    first_box = _COMMAND.search(text)
    if first_box is None:
        return None
    filled = _EMPTY.sub(lambda box: " " * len(box[0]), text)
    filled_box = _COMMAND.search(filled)
    if filled_box is not None:
        text = filled
        first_box = filled_box
    open_braces: list[int | None] = []  # start of each box's content; None for an ordinary brace
    last_opening = content_start = content_end = -1
    braced = False
    for match in _TOKEN.finditer(text, max(first_box.start() - 1, 0)):
        if match["box"] is not None:
            last_opening = match.end()
            braced = match["brace"] is not None
            if braced:
                open_braces.append(last_opening)
        elif match.group() == "{":
            open_braces.append(None)
        elif match.group() == "}" and open_braces:
            opening = open_braces.pop()
            if opening is not None:
                content_start = opening
                content_end = match.start()
    if last_opening < 0:
        return None
    still_open = [opening for opening in open_braces if opening is not None]
    if still_open and next(_ends_of_math(text, still_open[-1], last_opening), None) is None:
        return None
    # Boxes that close after the last opening enclose it, so the last one to close is the outermost.
    if content_end >= last_opening:
        return text[content_start:content_end].strip()
    end = None if braced else next(_ends_of_math(text, last_opening), None)
    return None if end is None else text[last_opening:end].strip()


THINK = "<think>"
END_OF_THINKING = "</think>"


def is_thinking(text: str, has_begun: bool) -> bool:
    """Return whether a completion is thinking that never ended; `has_begun`: it began in the prompt."""
    return (has_begun or THINK in text) and END_OF_THINKING not in text


def _ends_of_math(text: str, start: int, stop: int = sys.maxsize) -> Iterator[int]:
    return (match.start() for match in _END_OF_MATH.finditer(text, start, stop) if match["end"])


def written_out(number: float) -> str:
    """Write a finite number without an exponent (`1e-07`)."""
    return format(Decimal(repr(number)), "f")


def require_answer(text: str) -> str:
    r"""Return the text; raise a ValueError for "nan", a missing number. "inf" is `\infty` to Math-Verify."""
    if text.strip().lstrip("+-").lower() == "nan":
        raise ValueError(f"{text!r} is a missing number, not an answer")
    return text
