"""Random rewards: training without information (a control of "Spurious Rewards", arXiv 2506.10947).

A reward depends on (seed, problem, how often it was asked before, sample), so the next visit of a prompt has other
rewards, and a resumed run has the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, key


class Random(Section):
    """1 with probability p whatever the completion says, else 0: a control."""

    reward: Literal["random"] = key(..., "Reward at random.")
    p: float = key(0.5, "Probability of a reward.", gt=0, lt=1)


def score(settings: Random, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Random rewards, whatever the completions."""
    return [Judgement(float(context.uniform(attempt) < settings.p)) for attempt in attempts]


RANDOM = Reward(
    name="random",
    version=1,
    settings=Random,
    score=score,
    words=lambda settings: f"random rewards (p = {settings.p:g})",
    needs_reference=False,
)
