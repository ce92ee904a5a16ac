"""Text of a configuration or a data set inside Markdown: a reader sees what was written, and nothing comes alive.

The rules are CommonMark's and GitHub's, which the Hub shares: a backslash before ASCII punctuation makes it plain.
Names with single underscores, paths and plain sentences stay as they are. An address is one still, and GitHub links it.
"""

from __future__ import annotations

import re

from g2d.plain import plain

_ALIVE = re.compile(
    r"""
    \\(?=[!-/:-@\[-`{-~]|$)           # would take the meaning from what follows
  | [`*\[\]<|~$]                      # code, emphasis, links, HTML, tables, strikethrough, mathematics
  | (?<![^\W_])_ | _(?![^\W_])        # emphasis; not inside a word
  | &(?=\#?\w+;)                      # an entity
  | ^[#>+=-]                          # a heading, a quotation, a list
    """,
    re.VERBOSE,
)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])")  # a list, too
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def literal(text: str) -> str:
    """Text that is shown as it is, in one line, wherever a paragraph, a heading or a table cell may stand."""
    return _NUMBERED.sub(r"\1\\\2", _ALIVE.sub(r"\\\g<0>", plain(text)))


def shown(markdown: str) -> str:
    """What a reader sees of `literal` text."""
    return _ESCAPE.sub(r"\1", markdown)


def code(text: str) -> str:
    """Text in a code span."""
    fence = "`" * (_longest_run(text) + 1)
    padding = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{padding}{plain(text)}{padding}{fence}"


def fenced(text: str, language: str = "") -> str:
    """Lines in a block of code."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{plain(text, lines=True).rstrip()}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
