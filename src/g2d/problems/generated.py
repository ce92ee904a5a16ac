from __future__ import annotations

import secrets
from collections.abc import Sequence

from g2d.problems import calculation, replies, synthetic
from g2d.problems.problem import Problem
from g2d.problems.settings import OF_THE_RUN, Generated, ProblemSource, ReasoningProblems, SyntheticProblems


def generate(source: SyntheticProblems) -> list[Problem]:
    """Draw problems; a ValueError if too few exist, or before `with_seed`."""
    if isinstance(source.seed, str):
        raise ValueError("the seed of the run was not drawn yet")
    if source.family == "calculation":
        return calculation.generate(source.split, source.n, source.seed, levels_of(source))
    if source.family == "replies":
        return replies.generate(source.split, source.n, source.seed)
    return synthetic.generate(source.family, source.split, source.n, source.seed, levels_of(source))


def with_seed(source: ProblemSource) -> ProblemSource:
    if isinstance(source, SyntheticProblems) and source.seed == OF_THE_RUN:
        return source.model_copy(update={"seed": secrets.randbelow(2**31)})
    return source


def require_capacity(source: SyntheticProblems) -> None:
    if source.family == "calculation":
        calculation.require_capacity(source.n, levels_of(source))
    elif source.family == "replies":
        replies.require_capacity(source.split, source.n)
    else:
        synthetic.require_capacity(source.family, source.split, source.n, tuple(levels_of(source)))


def levels_of(source: Generated) -> Sequence[int]:
    if isinstance(source, ReasoningProblems):
        return range(1, len(source.levels or []) + 1)
    if source.family == "replies":
        return []
    if source.family == "calculation":
        return calculation.STEPS if source.steps is None else source.steps
    return source.levels or synthetic.LEVELS[source.family]


def per_level(source: SyntheticProblems) -> dict[int, int]:
    return dict(synthetic.shares(levels_of(source), source.n))
