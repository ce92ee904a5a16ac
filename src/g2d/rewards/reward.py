"""Interface of a reward. Rows also record the verifier's verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from g2d.problems import Problem
from g2d.settings import Section
from g2d.verifier import Verification

# `error`: a function in Python failed on this group. `late`: it exceeded its time limit.
Status = Literal["judged", "not_finite", "error", "late"]


class UnusableError(RuntimeError):
    """The message is one line with the fix."""


@dataclass(frozen=True, slots=True)
class VerifiedCompletion:
    """One completion of a problem. Its text is never executed or rendered."""

    problem: Problem  # with its plain id
    group: str  # `group_name`
    sample: int  # within the group
    text: str
    verified: Verification


@dataclass(frozen=True, slots=True)
class Judgement:
    reward: float | None  # None unless `judged`
    status: Status = "judged"
    details: Mapping[str, object] = field(default_factory=dict)  # JSON types


@dataclass(frozen=True, slots=True)
class Context:
    seed: int  # seed of the run
    stream: str  # "training" or "harvest"

    def uniform(self, completion: VerifiedCompletion) -> float:
        """Return a random number in [0, 1), the same in every batch, shard and resumed run."""
        words = ("reward", self.stream, str(self.seed), completion.group, str(completion.sample))
        digest = hashlib.sha256("\0".join(words).encode()).digest()
        return int.from_bytes(digest[:7]) / 2**56


@dataclass(frozen=True, slots=True)
class Reward:
    """One kind of reward.

    `score(settings, completions, context)` gets whole groups and returns a judgement per completion, in order. A
    judgement may depend only on its group, the settings and the context.
    """

    name: str  # used in the configuration and in tables
    version: int  # raise it when results change: trainings with the reward run again
    settings: type[Section]
    score: Callable[[Any, Sequence[VerifiedCompletion], Context], Sequence[Judgement]]
    words: Callable[[Any], str]  # phrase: "random rewards (p = 0.5)"
    binary: bool = True  # else any number, larger is better
    needs_reference: bool = True  # else it can judge open-ended problems
    gpu: bool = False  # whether a job that only judges needs one
    content: Callable[[Any], str | None] = lambda settings: None  # digest of local files it depends on
    mistake: Callable[[Any], str | None] = lambda settings: None  # why those files cannot be used, and the fix


AGAIN = "#asked-"  # before the number of a problem's visit


def group_name(problem_id: str, times_before: int) -> str:
    """Name a visit of a problem: each has separate random numbers."""
    if times_before == 0:
        return problem_id
    return f"{problem_id}{AGAIN}{times_before + 1}"


def plain_id(group: str) -> str:
    """Return the problem_id of a visit."""
    return group.split(AGAIN, maxsplit=1)[0]


def in_groups(completions: Sequence[VerifiedCompletion]) -> list[list[VerifiedCompletion]]:
    groups: dict[str, list[VerifiedCompletion]] = {}
    for completion in completions:
        groups.setdefault(completion.group, []).append(completion)
    return list(groups.values())
