"""Shards: a set of problems split over jobs, and their rollouts merged.

A rollout does not depend on the other prompts of its job, so the merged file is the same for any
number of shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from g2d.problems import Problem
from g2d.rollouts.rollout import read_rollouts, without_unused


def shard(problems: Sequence[Problem], index: int, count: int) -> list[Problem]:
    """Every `count`-th problem from the `index`-th on, counted from 1: problems are often sorted by level.

    Raises:
        ValueError: there are fewer problems than shards.
    """
    if len(problems) < count:
        raise ValueError(f"{len(problems)} problems cannot be split into {count} shards: lower it in engine.shards")
    return list(problems[index - 1 :: count])


def merge_shards(files: Sequence[str | Path], problems: Sequence[Problem]) -> pd.DataFrame:
    """The rollouts of all shards, in the order of the problems and, within a problem, of the samples.

    Raises:
        ValueError: a shard cannot be read, or has other problems; the message names the file.
    """
    frames = [read_rollouts(file) for file in files]
    for number, (file, frame) in enumerate(zip(files, frames, strict=True), 1):
        own = [problem.problem_id for problem in shard(problems, number, len(files))]
        if list(frame["problem_id"].unique()) != own:
            raise ValueError(f"{file}: not the rollouts of shard {number} of {len(files)}; delete it to draw it again")
    order = {problem.problem_id: place for place, problem in enumerate(problems)}
    rows = pd.concat(frames, ignore_index=True)
    places = rows["problem_id"].map(order)
    return without_unused(rows.iloc[places.argsort(kind="stable")].reset_index(drop=True))
