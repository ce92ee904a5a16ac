"""What the verifier can say about a completion. Only `correct` earns a reward; everything else stays countable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["correct", "incorrect", "no_boxed", "truncated", "parse_error", "timeout", "limit"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one completion and the answer it was reached on."""

    verdict: Verdict
    extracted_answer: str | None  # content of the last terminated \boxed{}, None without one

    @property
    def reward(self) -> float:
        """Binary reward of the paper (section 2.1): 1 for a verified answer, else 0."""
        return float(self.verdict == "correct")
