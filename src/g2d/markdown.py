"""Escaping of foreign text in Markdown, by the rules of CommonMark, GitHub and the Hub.

Names with single underscores, paths and plain sentences stay as they are. GitHub still links addresses.
"""

from __future__ import annotations

import re

from g2d.plain import plain

_SYNTAX = re.compile(
    r"""
    \\(?=[!-/:-@\[-`{-~]|$)           # would escape the next character
  | [`*\[\]<|~$]                      # code, emphasis, links, HTML, tables, strikethrough, mathematics
  | (?<![^\W_])_ | _(?![^\W_])        # emphasis; not inside a word
  | &(?=\#?\w+;)                      # entity
  | ^[#>+=-]                          # heading, quotation, list
    """,
    re.VERBOSE,
)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])")  # numbered list
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def literal(text: str) -> str:
    return _NUMBERED.sub(r"\1\\\2", _SYNTAX.sub(r"\\\g<0>", plain(text)))


def shown(markdown: str) -> str:
    """Return the text that a reader sees of `literal` text."""
    return _ESCAPE.sub(r"\1", markdown)


def code(text: str) -> str:
    fence = "`" * (_longest_run(text) + 1)
    padding = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{padding}{plain(text)}{padding}{fence}"


def fenced(text: str, language: str = "") -> str:
    """Return lines in a block of code."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{plain(text, lines=True).rstrip()}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
