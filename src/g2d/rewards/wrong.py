"""Rewards for wrong answers, a control: 1 for the verdict `incorrect`, 0 for right answers and for texts without one.

"Spurious Rewards" (arXiv 2506.10947) has another variant: one wrong label per problem, rewarded where it is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, key


class Wrong(Section):
    """1 for an answer that the verifier finds wrong, else 0: a control."""

    reward: Literal["wrong"] = key(..., "Reward wrong answers.")


def score(settings: Wrong, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 for the verdict `incorrect`."""
    return [Judgement(float(attempt.verified.verdict == "incorrect")) for attempt in attempts]


WRONG = Reward(
    name="wrong",
    version=1,
    settings=Wrong,
    score=score,
    words=lambda settings: "rewards for wrong answers",
)
