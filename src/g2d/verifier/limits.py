"""Limits of one verification."""

from __future__ import annotations

import re
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits per pair; answers of MATH, MATH-500 and GSM8K are far below the defaults."""

    deadline_s: float = 5.0  # CPU seconds, so that the load does not change verdicts
    wall_s: float = 60.0  # for a worker that hangs without using CPU
    memory_bytes: int = 1024 * MIB  # resident memory of a worker; an idle one holds 80 MiB
    max_completion_chars: int = 4_000_000
    max_answer_chars: int = 2_000
    max_nesting: int = 16

    def allow(self, answer: str) -> bool:
        return len(answer) <= self.max_answer_chars and nesting(answer) <= self.max_nesting


_BRACKET = re.compile(r"[{(\[]|[)\]}]")


def nesting(text: str) -> int:
    """Return the depth of brackets of any kind; `[1,2)` is balanced."""
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match.group() in "{([" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest
