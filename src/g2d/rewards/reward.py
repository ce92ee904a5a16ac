"""What a reward is: what a completion is worth in training, and all that the rest of the package has to know about it.

A reward decides what training sees. What a completion is, right or wrong, stays the verifier's word (`verdict`), beside
it in every row: so a policy that was trained on coins is still evaluated by the truth.
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

# `judged`: there is a number. `not_finite`: the reward gave something that is none. `error`: it failed on this group.
# `late`: it did not answer within its time limit.
Status = Literal["judged", "not_finite", "error", "late"]


class UnusableError(RuntimeError):
    """A reward that cannot judge anything, whatever it is asked; one line with the fix."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One completion of a problem. Its text is data: a reward may read it, and nobody executes or renders it."""

    problem: Problem
    group: str  # the completions that were drawn together: the problem_id, and how often it was asked before
    sample: int  # 0 .. G-1 within the group
    text: str
    verified: Verified  # what the verifier says of it


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one completion is worth.

    Attributes:
        reward: any finite number; None unless `judged`.
        details: what the reward found out, for whoever looks into a row; JSON types.
    """

    reward: float | None
    status: Status = "judged"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """What a reward may use beside the completions."""

    verifier: Verifier
    seed: int  # of the run
    stream: str  # what the completions were drawn for, "training" or "harvest"

    def uniform(self, attempt: Attempt) -> float:
        """A number in [0, 1) that belongs to this completion's place alone, in any batch, shard or resumed run."""
        words = ("reward", self.stream, str(self.seed), attempt.group, str(attempt.sample))
        return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:7]) / 2**56


@dataclass(frozen=True, slots=True)
class Reward:
    """One way to reward. `g2d.rewards.catalogue` lists those of the package; others come as plugins.

    `score(settings, attempts, context)` is given whole groups, one after another, and returns one judgement for each
    attempt, in order. What it says of a group depends on that group, the settings and the context alone.
    """

    name: str  # in the configuration and in tables
    version: int  # raised when what it computes changes: everything trained on it runs again
    settings: type[Section]
    score: Callable[[Any, Sequence[Attempt], Context], Sequence[Judgement]]
    words: Callable[[Any], str]  # "random rewards (p = 0.5)": it stands in sentences
    binary: bool = True  # 1 or 0; else a scalar, of which larger is better
    needs_reference: bool = True  # whether it looks at the reference answer; else it works where there is none
    gpu: bool = False  # whether it is faster on a GPU: a job that only judges asks for one
    # Digest of the files on this machine that decide on it beside its keys; None if there are none.
    content: Callable[[Any], str | None] = lambda own: None
    mistake: Callable[[Any], str | None] = lambda own: None  # what is wrong with those files, and the fix
    files: Callable[[Any], list[str]] = lambda own: []  # what a rule of the workflow makes before it can judge


AGAIN = "#asked-"  # between the name of a problem and how often it was asked, this time included


def group_name(problem_id: str, times_before: int) -> str:
    """What the completions of one visit are called: a problem that is asked again has other random numbers."""
    return f"{problem_id}{AGAIN}{times_before + 1}" if times_before else problem_id


def in_groups(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """The attempts of each group, in order of first appearance."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(attempt.group, []).append(attempt)
    return list(groups.values())
