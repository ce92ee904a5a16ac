"""Subsets of a pool, independent of its order; a larger n includes every problem of a smaller one."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from operator import attrgetter

from g2d.problems.problem import Problem

Level = int | None


def sample_per_level(
    pool: Sequence[Problem], per_level: int, seed: int, only: Collection[Level] | None = None
) -> list[Problem]:
    """Draw up to `per_level` problems of every level, or of the levels `only`.

    Problems without a level are left out; a pool without levels is one level.
    """
    sample: list[Problem] = []
    for level in levels_of(pool):
        if only is None or level in only:
            sample += _shuffled(pool, {level}, f"calibration/{level}/{seed}")[:per_level]
    return sample


def levels_of(pool: Sequence[Problem]) -> list[Level]:
    """`[None]` if no problem has a level."""
    levels = sorted({problem.level for problem in pool if problem.level is not None})
    return [*levels] or [None]


def draw_training_set(pool: Sequence[Problem], levels: Collection[Level], n: int, seed: int) -> list[Problem]:
    """Draw n different problems of the given levels, uniformly; a ValueError if there are fewer."""
    candidates = _shuffled(pool, levels, f"training_set/{seed}")
    if len(candidates) < n:
        raise ValueError(
            f"training_set.n: {n} problems asked for, but the pool has {len(candidates)} at levels {list(levels)} "
            f"(it has levels {levels_of(pool)}): lower training_set.n, pin more calibration.levels, or enlarge the pool"
        )
    return candidates[:n]


def _shuffled(pool: Sequence[Problem], levels: Collection[Level], seed: str) -> list[Problem]:
    chosen = [problem for problem in pool if problem.level in levels]
    chosen.sort(key=attrgetter("problem_id"))
    random.Random(seed).shuffle(chosen)
    return chosen
