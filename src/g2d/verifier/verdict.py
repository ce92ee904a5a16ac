"""Verdicts on completions. Only `correct` has a reward; all are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["correct", "incorrect", "no_boxed", "truncated", "parse_error", "timeout", "limit", "no_reference"]
NO_REFERENCE: Verdict = "no_reference"


@dataclass(frozen=True, slots=True)
class Judgement:
    r"""The verdict on one completion and the answer it was reached on.

    Attributes:
        verdict: `correct` or `incorrect` by Math-Verify, or by the task of reasoning-gym; `no_boxed`: no
            terminated box; `truncated`: no terminated box because the token budget ran out; `parse_error`: the answer
            is not mathematics that Math-Verify reads; `timeout`: verifying it exceeded its deadline; `limit`: it
            exceeded a limit on size, nesting or memory;
            `no_reference`: the problem has no right answer, so there is nothing to verify.
        extracted_answer: content of the last terminated \boxed{}, None without one.
        second_opinion: whether an independent comparison of normalised strings and numbers finds the answer equal to
            the reference; None where it cannot say.
    """

    verdict: Verdict
    extracted_answer: str | None
    second_opinion: bool | None = None

    @property
    def reward(self) -> float:
        """Binary reward of the paper (section 2.1): 1 for a verified answer, else 0."""
        return float(self.verdict == "correct")

    @property
    def disputed(self) -> bool:
        """Whether the second opinion contradicts the reward; False where it cannot say."""
        return self.second_opinion is not None and self.second_opinion != (self.verdict == "correct")
