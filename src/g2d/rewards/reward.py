"""The interface of a reward: what a completion is worth in training.

The verdict on a completion, right or wrong, stays the verifier's, beside the reward in every row, so a policy that was
trained on random rewards is still evaluated by the truth.
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

# `judged`: there is a number. `not_finite`: the reward gave none that is finite. `error`: it failed on this group.
# `late`: it exceeded its time limit.
Status = Literal["judged", "not_finite", "error", "late"]


class UnusableError(RuntimeError):
    """A reward that cannot judge anything; one line with the fix."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One completion of a problem. Its text is data, which is never executed or rendered."""

    problem: Problem
    group: str  # the completions that were drawn together: `group_name`
    sample: int  # 0 .. G-1 within the group
    text: str
    verified: Verified


@dataclass(frozen=True, slots=True)
class Judgement:
    """The reward of one completion."""

    reward: float | None  # any finite number; None unless `judged`
    status: Status = "judged"
    details: Mapping[str, Any] = field(default_factory=dict)  # further findings for the row; JSON types


@dataclass(frozen=True, slots=True)
class Context:
    """What a reward can use besides the completions."""

    verifier: Verifier
    seed: int  # of the run
    stream: str  # of the completions, "training" or "harvest"

    def uniform(self, attempt: Attempt) -> float:
        """A number in [0, 1) for this completion, the same in any batch, shard or resumed run."""
        words = ("reward", self.stream, str(self.seed), attempt.group, str(attempt.sample))
        return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:7]) / 2**56


@dataclass(frozen=True, slots=True)
class Reward:
    """One way to reward. `g2d.rewards.catalogue` lists those of the package; others are plugins.

    `score(settings, attempts, context)` gets whole groups, one after another, and returns one judgement for each
    attempt, in order. The judgements of a group depend on that group, the settings and the context alone.
    """

    name: str  # in the configuration and in tables
    version: int  # raised when its results change: everything trained on it runs again
    settings: type[Section]
    score: Callable[[Any, Sequence[Attempt], Context], Sequence[Judgement]]
    words: Callable[[Any], str]  # for sentences: "random rewards (p = 0.5)"
    binary: bool = True  # 1 or 0; else a scalar, of which larger is better
    needs_reference: bool = True  # else it can judge open-ended problems
    gpu: bool = False  # whether a job that only judges asks for a GPU
    content: Callable[[Any], str | None] = lambda own: None  # digest of the local files that it depends on, if any
    mistake: Callable[[Any], str | None] = lambda own: None  # why those files cannot be used, and the fix
    files: Callable[[Any], list[str]] = lambda own: []  # that a rule of the workflow makes before it can judge


AGAIN = "#asked-"  # between the name of a problem and the number of its visit


def group_name(problem_id: str, times_before: int) -> str:
    """The name of the completions of one visit of a problem, which has random numbers of its own."""
    return f"{problem_id}{AGAIN}{times_before + 1}" if times_before else problem_id


def in_groups(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """The attempts of each group, in order of first appearance."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(attempt.group, []).append(attempt)
    return list(groups.values())
