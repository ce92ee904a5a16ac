"""The default reward, and the controls of "Spurious Rewards" (arXiv 2506.10947).

`wrong` differs from that paper's wrong rewards for one wrong label per problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward, in_groups
from g2d.settings import Section, key
from g2d.verifier import last_boxed


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


class Majority(Section):
    """Control: 1 for the most frequent answer of the group, else 0; needs no reference answer."""

    reward: Literal["majority"] = key(..., "Reward the group's most frequent answer.")


def _by_truth(settings: MathVerify, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Reward right answers (G2D, section 2.1)."""
    return [Judgement(attempt.verified.reward) for attempt in attempts]


def _by_wrongness(settings: Wrong, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Reward wrong answers; texts without an answer get 0."""
    return [Judgement(float(attempt.verified.verdict == "incorrect")) for attempt in attempts]


def _by_format(settings: Format, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    return [Judgement(float(last_boxed(attempt.text) is not None)) for attempt in attempts]


def _at_random(settings: Random, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    # new at each visit of a prompt, repeated by a resumed run
    return [Judgement(float(context.uniform(attempt) < settings.p)) for attempt in attempts]


def _by_majority(settings: Majority, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Reward the most frequent answer, as test-time RL does (arXiv 2504.16084, section 2.2).

    Answers are equal if the verifier says so, with the earlier one as the reference; an empty box does not equal
    itself. The first answer wins a tie.
    """
    groups = in_groups(attempts)
    given = [[attempt.verified.extracted_answer for attempt in group] for group in groups]
    answers = [list(dict.fromkeys(answer for answer in group if answer is not None)) for group in given]
    pairs = list(dict.fromkeys(pair for group in answers for pair in combinations_with_replacement(group, 2)))
    judgements = context.verifier.verify([(first, rf"\boxed{{{second}}}") for first, second in pairs])
    equal = {pair for pair, judgement in zip(pairs, judgements, strict=True) if judgement.verdict == "correct"}
    judged: dict[tuple[str, int], Judgement] = {}
    for group, different in zip(groups, answers, strict=True):
        stands_for: dict[str, str] = {}  # each answer's first equal one
        for answer in different:
            if (answer, answer) in equal:
                earlier = (first for first in dict.fromkeys(stands_for.values()) if (first, answer) in equal)
                stands_for[answer] = next(earlier, answer)
        votes = [stands_for.get(attempt.verified.extracted_answer or "") for attempt in group]
        counts = Counter(vote for vote in votes if vote is not None)
        winner = max(counts, key=counts.__getitem__, default=None)  # the first in a tie
        details = {"majority": winner, "votes": counts[winner or ""]}
        for attempt, vote in zip(group, votes, strict=True):
            won = vote is not None and vote == winner
            judged[attempt.group, attempt.sample] = Judgement(float(won), details=details)
    return [judged[attempt.group, attempt.sample] for attempt in attempts]


MATH_VERIFY = Reward("math_verify", 1, MathVerify, _by_truth, words=lambda settings: "true rewards")
WRONG = Reward("wrong", 1, Wrong, _by_wrongness, words=lambda settings: "rewards for wrong answers")
FORMAT = Reward(
    "format", 1, Format, _by_format, words=lambda settings: "rewards for the format alone", needs_reference=False
)
RANDOM = Reward(
    "random",
    1,
    Random,
    _at_random,
    words=lambda settings: f"random rewards (p = {settings.p:g})",
    needs_reference=False,
)
MAJORITY = Reward(
    name="majority",
    version=1,
    settings=Majority,
    score=_by_majority,
    words=lambda settings: "rewards for the group's own majority answer",
    needs_reference=False,
)
