r"""Majority votes: 1 for the answer that most completions of the group have; no reference is looked at (test-time RL,
arXiv 2504.16084, section 2.2; a control of "Spurious Rewards", arXiv 2506.10947).

Answers are equal where the verifier finds them so, the earlier one as the reference. Only an answer that it finds equal
to itself has a vote: an empty box is no answer. Of answers with equally many votes the one that was given
first wins, by the place in the group, which has nothing to do with what is right. Where all answers differ that rewards
the first one, a coin in effect; rewarding all or none of them would leave no signal and hide that votes are not always
informative.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward, in_groups
from g2d.settings import Section, key


class Majority(Section):
    """1 for the answer that most of the group's completions have, else 0; no reference answer is needed: a control."""

    reward: Literal["majority"] = key(..., "Reward the group's own most frequent answer.")


def score(settings: Majority, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 for the winner's answer; details say it, with its votes."""
    groups = in_groups(attempts)
    answers = [list(dict.fromkeys(a for attempt in group if (a := _answer(attempt)) is not None)) for group in groups]
    asked = list(dict.fromkeys(pair for own in answers for pair in combinations_with_replacement(own, 2)))
    found = context.verifier.verify([(first, rf"\boxed{{{second}}}") for first, second in asked])
    equal = {pair for pair, judgement in zip(asked, found, strict=True) if judgement.verdict == "correct"}
    judged: dict[tuple[str, int], Judgement] = {}
    for group, own in zip(groups, answers, strict=True):
        stands_for: dict[str, str] = {}  # by answer, the first one that it equals
        for answer in own:
            if (answer, answer) in equal:
                earlier = (first for first in dict.fromkeys(stands_for.values()) if (first, answer) in equal)
                stands_for[answer] = next(earlier, answer)
        votes = [stands_for.get(_answer(attempt) or "") for attempt in group]
        counts: dict[str, int] = {}
        for vote in votes:
            if vote is not None:
                counts[vote] = counts.get(vote, 0) + 1
        winner = max(counts, key=counts.__getitem__, default=None)  # the first of several
        details = {"majority": winner, "votes": counts.get(winner or "", 0)}
        for attempt, vote in zip(group, votes, strict=True):
            won = vote is not None and vote == winner
            judged[attempt.group, attempt.sample] = Judgement(float(won), details=details)
    return [judged[attempt.group, attempt.sample] for attempt in attempts]


def _answer(attempt: Attempt) -> str | None:
    return attempt.verified.extracted_answer


MAJORITY = Reward(
    name="majority",
    version=1,
    settings=Majority,
    score=score,
    words=lambda settings: "rewards for the group's own majority answer",
    needs_reference=False,
)
