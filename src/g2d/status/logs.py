"""The last line of a log, without what could control a terminal."""

from __future__ import annotations

import os
from pathlib import Path

from g2d.plain import plain

TAIL = 8192  # bytes at the end of a log that are looked at


def last_line(log: Path) -> str:
    """The last line with text in it, as `plain` text; "" if there is none or the log cannot be read."""
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return next((line for line in map(plain, reversed(text.splitlines())) if line), "")
