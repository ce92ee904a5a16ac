r"""Rewards for the format: 1 for a terminated box, whatever its content (a control of "Spurious Rewards", arXiv
2506.10947)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, key
from g2d.verifier import find_last_boxed


class Format(Section):
    """1 for an answer in a terminated box, right or wrong, else 0: a control."""

    reward: Literal["format"] = key(..., "Reward a terminated box, whatever is in it.")


def score(settings: Format, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 where the last box is terminated, as for the verifier; also an empty one."""
    return [Judgement(float(find_last_boxed(attempt.text).terminated)) for attempt in attempts]


FORMAT = Reward(
    name="format",
    version=1,
    settings=Format,
    score=score,
    words=lambda settings: "rewards for the format alone",
    needs_reference=False,
)
