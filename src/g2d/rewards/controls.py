r"""The truth, and controls of "Spurious Rewards" (arXiv 2506.10947) that look at one completion alone.

That paper's wrong rewards are another variant: one wrong label per problem, rewarded where it is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, key
from g2d.verifier import last_boxed


class MathVerify(Section):
    """The verifier's word: 1 for a right answer, else 0."""

    reward: Literal["math_verify"] = key(..., "Reward right answers.")


class Wrong(Section):
    """1 for an answer that the verifier finds wrong, else 0: a control."""

    reward: Literal["wrong"] = key(..., "Reward wrong answers.")


class Format(Section):
    """1 for an answer in a terminated box, right or wrong, else 0: a control."""

    reward: Literal["format"] = key(..., "Reward a terminated box, whatever is in it.")


class Random(Section):
    """1 with probability p whatever the completion says, else 0: a control."""

    reward: Literal["random"] = key(..., "Reward at random.")
    p: float = key(0.5, "Probability of a reward.", gt=0, lt=1)


def _by_truth(settings: MathVerify, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 for a terminated box with the right answer, else 0 (G2D, section 2.1)."""
    return [Judgement(attempt.verified.reward) for attempt in attempts]


def _by_wrongness(settings: Wrong, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 for the verdict `incorrect`; 0 also for texts without an answer."""
    return [Judgement(float(attempt.verified.verdict == "incorrect")) for attempt in attempts]


def _by_format(settings: Format, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 where the last box is terminated, as for the verifier; also an empty one."""
    return [Judgement(float(last_boxed(attempt.text) is not None)) for attempt in attempts]


def _at_random(settings: Random, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """By (seed, problem, how often it was asked before, sample): a prompt's next visit has other rewards, and a resumed
    run the same ones."""
    return [Judgement(float(context.uniform(attempt) < settings.p)) for attempt in attempts]


MATH_VERIFY = Reward("math_verify", 1, MathVerify, _by_truth, words=lambda own: "true rewards")
WRONG = Reward("wrong", 1, Wrong, _by_wrongness, words=lambda own: "rewards for wrong answers")
FORMAT = Reward(
    "format", 1, Format, _by_format, words=lambda own: "rewards for the format alone", needs_reference=False
)
RANDOM = Reward(
    "random", 1, Random, _at_random, words=lambda own: f"random rewards (p = {own.p:g})", needs_reference=False
)
