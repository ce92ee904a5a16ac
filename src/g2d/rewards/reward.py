"""Interface of a reward, the number that training assigns to a completion.

Every row also records the verifier's verdict, so a policy trained on random rewards is still evaluated on correctness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from g2d.problems import Problem
from g2d.settings import Section
from g2d.verifier import Judgement as Verified
from g2d.verifier import Verifier

# `not_finite`: the reward is no finite number. `error`: it failed on this group. `late`: it exceeded its time limit.
Status = Literal["judged", "not_finite", "error", "late"]


class UnusableError(RuntimeError):
    """The reward cannot judge anything; the message is one line with the fix."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One completion of a problem. Its text is data and is never executed or rendered."""

    problem: Problem
    group: str  # `group_name` of the completions that were sampled together
    sample: int  # 0 .. G-1 within the group
    text: str
    verified: Verified


@dataclass(frozen=True, slots=True)
class Judgement:
    """The reward of one completion."""

    reward: float | None  # any finite number; None unless `judged`
    status: Status = "judged"
    details: Mapping[str, Any] = field(default_factory=dict)  # further data for the row; JSON types


@dataclass(frozen=True, slots=True)
class Context:
    """Resources for a reward besides the completions."""

    verifier: Verifier
    seed: int  # of the run
    stream: str  # "training" or "harvest"

    def uniform(self, attempt: Attempt) -> float:
        """Random number in [0, 1) for a completion, the same in every batch, shard and resumed run."""
        words = ("reward", self.stream, str(self.seed), attempt.group, str(attempt.sample))
        return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:7]) / 2**56


@dataclass(frozen=True, slots=True)
class Reward:
    """One kind of reward. `g2d.rewards.catalogue` lists the built-in ones; others are of installed packages.

    `score(settings, attempts, context)` gets whole groups, one after another, and returns one judgement per attempt, in
    order. The judgements of a group must only depend on that group, the settings and the context.
    """

    name: str  # used in the configuration and in tables
    version: int  # raise it when results change: all trainings that use the reward run again
    settings: type[Section]
    score: Callable[[Any, Sequence[Attempt], Context], Sequence[Judgement]]
    words: Callable[[Any], str]  # for sentences: "random rewards (p = 0.5)"
    binary: bool = True  # 1 or 0; otherwise any number, larger is better
    needs_reference: bool = True  # if False, it can judge open-ended problems
    gpu: bool = False  # whether a job that only judges requests a GPU
    content: Callable[[Any], str | None] = lambda own: None  # digest of the local files it depends on, if any
    mistake: Callable[[Any], str | None] = lambda own: None  # reason why those files cannot be used, and the fix
    files: Callable[[Any], list[str]] = lambda own: []  # made by a rule before it can judge


AGAIN = "#asked-"  # separates the name of a problem from the number of its visit


def group_name(problem_id: str, times_before: int) -> str:
    """Name of the group of one visit of a problem; each visit has separate random numbers."""
    return f"{problem_id}{AGAIN}{times_before + 1}" if times_before else problem_id


def in_groups(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Split attempts into groups, in order of first appearance."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(attempt.group, []).append(attempt)
    return list(groups.values())
