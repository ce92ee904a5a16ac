"""The last line of a log: what others wrote, made harmless for a terminal."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

TAIL = 8192  # bytes at the end of a log that are looked at
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -~])")
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})


def last_line(log: Path) -> str:
    """The last line that is not empty, as `plain` text; empty if there is none or the log cannot be read."""
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return next((line for line in map(plain, reversed(text.splitlines())) if line), "")


def plain(text: str) -> str:
    """A text in one line, without what a terminal would obey or a reader not see: escape sequences, control and
    format characters (those that turn the direction of writing among them)."""
    kept = (" " if unicodedata.category(c) in _INVISIBLE else c for c in _ESCAPES.sub("", text))
    return " ".join("".join(kept).split())
