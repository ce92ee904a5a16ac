"""The default reward, and the controls of "Spurious Rewards" (arXiv 2506.10947).

`wrong` differs from that paper's wrong rewards for one wrong label per problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from g2d.rewards.reward import Context, Judgement, Reward, VerifiedCompletion
from g2d.settings import Section, key
from g2d.verifier import last_boxed
from g2d.verifier.verifier import UNFINISHED_THINKING


class MathVerify(Section):
    """Correctness: 1 for a right answer, else 0."""

    reward: Literal["math_verify"] = key(..., "Reward right answers.")


class Wrong(Section):
    """Control: 1 for a wrong answer, else 0."""

    reward: Literal["wrong"] = key(..., "Reward wrong answers.")


class Format(Section):
    """Control: 1 for an answer in a complete box, right or wrong, else 0."""

    reward: Literal["format"] = key(..., "Reward a complete box, whatever its content.")


class Random(Section):
    """Control: 1 with probability p, else 0."""

    reward: Literal["random"] = key(..., "Reward at random.")
    p: float = key(0.5, "Probability of a reward.", gt=0, lt=1)


def _by_truth(settings: MathVerify, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    """Reward right answers (G2D, section 2.1)."""
    return [Judgement(completion.verified.reward) for completion in completions]


def _by_wrongness(settings: Wrong, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    """Reward wrong answers; texts without an answer get 0."""
    return [Judgement(float(completion.verified.verdict == "incorrect")) for completion in completions]


def _by_format(settings: Format, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    return [Judgement(float(_has_answer(completion))) for completion in completions]


def _has_answer(completion: VerifiedCompletion) -> bool:
    return last_boxed(completion.text) is not None and completion.verified.verdict != UNFINISHED_THINKING


def _at_random(settings: Random, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    # new at each visit of a prompt, repeated by a resumed run
    return [Judgement(float(context.uniform(completion) < settings.p)) for completion in completions]


MATH_VERIFY = Reward("math_verify", 1, MathVerify, _by_truth, words=lambda settings: "true rewards")
WRONG = Reward("wrong", 1, Wrong, _by_wrongness, words=lambda settings: "rewards for wrong answers")
FORMAT = Reward(
    "format", 1, Format, _by_format, words=lambda settings: "rewards only for the format", needs_reference=False
)
RANDOM = Reward(
    "random",
    1,
    Random,
    _at_random,
    words=lambda settings: f"random rewards (p = {settings.p:g})",
    needs_reference=False,
)
