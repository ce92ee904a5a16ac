"""Printing and cleaning of foreign text (names, titles, exceptions, log lines): no terminal escapes, no invisible
characters. Only completions keep them, as numbers (`report.markup`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -~])")
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})


def is_hidden(character: str) -> bool:
    """Return whether it is a control or format character; bidirectional marks are."""
    return unicodedata.category(character) in _INVISIBLE


def plain(text: str, *, lines: bool = False) -> str:
    """Return a text without escape sequences, and with a space for every hidden character.

    Args:
        lines: keep line breaks, tabs and spaces; else return one line.
    """
    if text.isprintable():
        return text if lines else " ".join(text.split())
    kept = "".join(" " if is_hidden(c) and not (lines and c in "\n\t") else c for c in _ESCAPES.sub("", text))
    return kept if lines else " ".join(kept.split())


def visible(value: object) -> object:
    """Return the `plain` lines of a text that a template fills in; other values, also of markup, stay."""
    if type(value) is str:
        return plain(value, lines=True)
    return value


def first_line(error: Exception) -> str:
    """Return an exception's message in one line; its type if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def counted(n: int, noun: str, verb: str = "") -> str:
    """Return a number with a regular noun and verb: "1 job runs", "2 jobs run"."""
    words = f"{n} {noun}" if n == 1 else f"{n} {noun}s"
    if not verb:
        return words
    return f"{words} {verb}s" if n == 1 else f"{words} {verb}"


def say(text: str = "", file: TextIO | None = None) -> None:
    print(plain(text, lines=True), file=file, flush=True)


def without_folders(settings: object) -> object:
    """Remove folders of this machine, because these name people and machines."""
    if isinstance(settings, Mapping):
        return {name: without_folders(value) for name, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [without_folders(value) for value in settings]
    if isinstance(settings, str) and settings.startswith(("/", "~/")) and len(Path(settings).parts) > 2:
        return f"path/to/{Path(settings).name}"
    return settings
