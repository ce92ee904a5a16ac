r"""Majority votes: 1 for the most frequent answer of the group; the reference is not used (test-time RL, arXiv
2504.16084, section 2.2; a control of "Spurious Rewards", arXiv 2506.10947).

Answers are equal where the verifier says so, with the earlier one as the reference. An answer that does not equal
itself, such as an empty box, has no vote. Of equally frequent answers the first one of the group wins, so where all
answers differ one completion is rewarded at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Literal

from g2d.rewards.reward import Attempt, Context, Judgement, Reward, in_groups
from g2d.settings import Section, key


class Majority(Section):
    """1 for the answer that most of the group's completions have, else 0; no reference answer is needed: a control."""

    reward: Literal["majority"] = key(..., "Reward the group's own most frequent answer.")


def score(settings: Majority, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """1 for the most frequent answer; details have it with its votes."""
    groups = in_groups(attempts)
    answers = [list(dict.fromkeys(a for attempt in group if (a := _answer(attempt)) is not None)) for group in groups]
    pairs = list(dict.fromkeys(pair for own in answers for pair in combinations_with_replacement(own, 2)))
    found = context.verifier.verify([(first, rf"\boxed{{{second}}}") for first, second in pairs])
    equal = {pair for pair, judgement in zip(pairs, found, strict=True) if judgement.verdict == "correct"}
    judged: dict[tuple[str, int], Judgement] = {}
    for group, own in zip(groups, answers, strict=True):
        stands_for: dict[str, str] = {}  # by answer, the first one that it equals
        for answer in own:
            if (answer, answer) in equal:
                earlier = (first for first in dict.fromkeys(stands_for.values()) if (first, answer) in equal)
                stands_for[answer] = next(earlier, answer)
        votes = [stands_for.get(_answer(attempt) or "") for attempt in group]
        counts = Counter(vote for vote in votes if vote is not None)
        winner = max(counts, key=counts.__getitem__, default=None)  # the first of several
        details = {"majority": winner, "votes": counts[winner or ""]}
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
