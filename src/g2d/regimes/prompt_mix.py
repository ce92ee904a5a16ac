"""Which prompts an online training asks: verifiable ones, open-ended ones, or both in every batch ("Bridging Offline
and Online RL", arXiv 2506.21495, section 3.3).

Of a mixed batch the number of open-ended prompts is the same in every update, not only on average. Each kind keeps an
order of its own, the one in which it would be asked alone, so nothing of it depends on the other kind, on the share, or
on the regime.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, Self

from pydantic import model_validator

from g2d.problems import Problem
from g2d.regimes.retirement import prompt_order
from g2d.settings import MistakeInKeyError, Section, key

NEARLY = 0.01  # of a prompt: 0.333 of 15 prompts are 5


class PromptMix(Section):
    """The keys of what is asked, which an ablation and an online entry share."""

    prompts: Literal["verifiable", "open_ended", "mixed"] = key(
        "verifiable",
        "What is asked: the training set, the prompts of `open_ended.pool`, or some of both in every update.",
        paper="all three, in arXiv 2506.21495",
        neutral="verifiable",
    )
    open_ended_share: float = key(
        0.5,
        "Of mixed prompts: the share of an update's prompts that is open-ended, a whole number of them.",
        paper="1/3, in arXiv 2506.21495",
        gt=0,
        lt=1,
        neutral=0.5,
    )

    @model_validator(mode="after")
    def _of_a_mix(self) -> Self:
        if self.prompts != "mixed" and self.open_ended_share != PromptMix.model_fields["open_ended_share"].default:
            raise MistakeInKeyError("open_ended_share", "is about mixed prompts: drop it, or write prompts: mixed")
        return self

    @property
    def asks_open_ended(self) -> bool:
        """Whether any of its prompts is open-ended."""
        return self.prompts != "verifiable"

    @property
    def kinds(self) -> list[str]:
        """The kinds of its prompts."""
        return ["verifiable", "open_ended"] if self.prompts == "mixed" else [self.prompts]

    def open_ended_of(self, per_update: int) -> int:
        """How many of an update's prompts are open-ended.

        Raises:
            ValueError: the share is no whole number of them, or leaves nothing of one kind.
        """
        if self.prompts != "mixed":
            return per_update if self.prompts == "open_ended" else 0
        asked = self.open_ended_share * per_update
        n = round(asked)
        if abs(asked - n) > NEARLY or not 0 < n < per_update:
            nearest = min(range(1, per_update), key=lambda count: abs(count - asked), default=None)
            fix = f"write {nearest / per_update:.4g} for {nearest}" if nearest else "ask two prompts or more"
            raise ValueError(f"open_ended_share={self.open_ended_share:g} of {per_update} prompts are {asked:g}: {fix}")
        return n


VERIFIABLE = PromptMix()


def order(asked: PromptMix, problems: Sequence[Problem], n_prompts: int, per_update: int, seed: int) -> list[int]:
    """Indices of the problems that a trajectory asks, those of one update after another.

    Args:
        problems: of the kinds that are asked, in any order.
        n_prompts: length of the order, a multiple of `per_update`.
        per_update: prompts of an update.

    Raises:
        ValueError: there are no problems of a kind that is asked, or names repeat.
    """
    require_named_once(problems)
    by_kind = {
        kind: [number for number, problem in enumerate(problems) if problem.kind == kind]
        for kind in ("verifiable", "open_ended")
    }
    open_ended = asked.open_ended_of(per_update)
    wanted = {"verifiable": per_update - open_ended, "open_ended": open_ended}
    updates = math.ceil(n_prompts / per_update)
    if missing := [kind for kind, n in wanted.items() if n and not by_kind[kind]]:
        raise ValueError(f"there is no problem of the kind {missing[0]} to ask")
    streams = {
        kind: iter([by_kind[kind][i] for i in prompt_order(len(by_kind[kind]), n * updates, seed)])
        for kind, n in wanted.items()
        if n
    }
    return [next(streams[kind]) for _ in range(updates) for kind in streams for _ in range(wanted[kind])][:n_prompts]


def times_before(order: Sequence[int]) -> Iterator[int]:
    """How often each problem of an order was asked before."""
    seen: Counter[int] = Counter()
    for number in order:
        yield seen[number]
        seen[number] += 1


def require_named_once(problems: Sequence[Problem]) -> None:
    """Check that identifiers tell problems apart, also those of different sets.

    Raises:
        ValueError: two problems have the same one.
    """
    names = Counter(problem.problem_id for problem in problems)
    if repeated := [name for name, n in names.items() if n > 1]:
        raise ValueError(
            f"{repeated[0]!r} is a problem of the training set and of open_ended.pool: drop `fields.id` of one of them"
        )
