"""Shards: a set of problems split over jobs, and their rollouts put together again.

A rollout does not depend on the other prompts of its job (see the engines), so splitting changes where rollouts are
drawn and nothing else: the merged file holds the same rows in the same order whatever the number of shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from g2d.problems import Problem
from g2d.rollouts.rollout import read_rollouts, without_unused


def shard(problems: Sequence[Problem], index: int, count: int) -> list[Problem]:
    """Every `count`-th problem from the `index`-th on, counted from 1.

    Dealt out like cards, because problems are often sorted by level and hard ones take longer.

    Raises:
        ValueError: there are fewer problems than shards.
    """
    if len(problems) < count:
        raise ValueError(f"{len(problems)} problems cannot be split into {count} shards: lower it in engine.shards")
    return list(problems[index - 1 :: count])


def merge_shards(files: Sequence[str | Path], problems: Sequence[Problem]) -> pd.DataFrame:
    """The rollouts of all shards, in the order of the problems and, within a problem, of the samples.

    Raises:
        ValueError: a shard cannot be read, or holds other problems than it was dealt; the message names the file.
    """
    frames = [read_rollouts(file) for file in files]
    for number, (file, frame) in enumerate(zip(files, frames, strict=True), 1):
        dealt = [problem.problem_id for problem in shard(problems, number, len(files))]
        if list(frame["problem_id"].unique()) != dealt:
            raise ValueError(f"{file}: not the rollouts of shard {number} of {len(files)}; delete it to draw it again")
    order = {problem.problem_id: place for place, problem in enumerate(problems)}
    rows = pd.concat(frames, ignore_index=True)
    places = rows["problem_id"].map(order)
    return without_unused(rows.iloc[places.argsort(kind="stable")].reset_index(drop=True))
