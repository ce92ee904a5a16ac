"""The truth: 1 for a terminated box with the right answer, else 0 (G2D, section 2.1); the default reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, key


class MathVerify(Section):
    """The verifier's word: 1 for a right answer, else 0."""

    reward: Literal["math_verify"] = key(..., "Reward right answers.")


def score(settings: MathVerify, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 for the verdict `correct`."""
    return [Judgement(attempt.verified.reward) for attempt in attempts]


MATH_VERIFY = Reward(
    name="math_verify", version=1, settings=MathVerify, score=score, words=lambda settings: "true rewards"
)
