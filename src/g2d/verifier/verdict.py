"""Verdicts on completions; only `correct` is rewarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OfMathVerify = Literal[
    "correct",
    "incorrect",
    "no_boxed",
    "truncated",
    "unfinished_thinking",
    "parse_error",
    "timeout",
    "limit",
    "no_reference",
]
Verdict = OfMathVerify | Literal["error", "not_bool"]  # the others are those of a verifier in Python
NO_REFERENCE: Verdict = "no_reference"
UNFINISHED_THINKING: Verdict = "unfinished_thinking"


@dataclass(frozen=True, slots=True)
class Verification:
    r"""The verdict on one completion and the answer it is based on.

    Attributes:
        verdict: `no_boxed`: no terminated box; `truncated`: not right, and the token budget ran out;
            `unfinished_thinking`: `<think>` without `</think>`; `parse_error`: Math-Verify cannot read the answer;
            `limit`: of size, nesting or memory; `no_reference`: there is no right answer; `error`: the user's function
            raised an exception; `not_bool`: it returned something else.
        extracted_answer: content of the last terminated \boxed{}; None if a user's function judged.
    """

    verdict: Verdict
    extracted_answer: str | None

    @property
    def reward(self) -> float:
        return float(self.verdict == "correct")
