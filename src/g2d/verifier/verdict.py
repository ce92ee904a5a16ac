"""Verdicts on completions; only `correct` is rewarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["correct", "incorrect", "no_boxed", "truncated", "parse_error", "timeout", "limit", "no_reference"]
NO_REFERENCE: Verdict = "no_reference"


@dataclass(frozen=True, slots=True)
class Judgement:
    r"""The verdict on one completion and the answer it is based on.

    Attributes:
        verdict: `no_boxed`: no terminated box; `truncated`: the same because the token budget ran out; `parse_error`:
            Math-Verify cannot read the answer; `limit`: of size, nesting or memory; `no_reference`:
            there is no right answer.
        extracted_answer: content of the last terminated \boxed{}.
        second_opinion: whether an independent comparison finds the answer right; None if it cannot decide.
    """

    verdict: Verdict
    extracted_answer: str | None
    second_opinion: bool | None = None

    @property
    def reward(self) -> float:
        return float(self.verdict == "correct")

    @property
    def disputed(self) -> bool:
        return self.second_opinion is not None and self.second_opinion != (self.verdict == "correct")
