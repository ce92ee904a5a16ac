"""A long draw in parts, each kept as soon as it is there, so that an attempt that is stopped loses one part at most.

The parts are shards (`g2d.rollouts.shards`) of one job, drawn one after another by one engine, so the rows are those of
a draw in one piece. Like a training's checkpoints they lie in a work folder, are sealed with the digest of the job and
say what had been spent up to them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.jobs.cost import Meter
from g2d.plain import say
from g2d.problems import Problem
from g2d.regimes.checkpoints import MANIFEST, carry, job_digest, require_intact, seal
from g2d.regimes.stopping import work_folder
from g2d.rollouts.rollout import Rollout, to_frame, write_rollouts
from g2d.rollouts.shards import merge_shards, shard

PART = 2048  # rollouts: enough to keep an engine busy, minutes of a GPU; shorter draws are made in one piece
ROLLOUTS = "rollouts.parquet"


def draw_in_parts(
    folder: Path,
    problems: Sequence[Problem],
    draw: Callable[[Sequence[Problem]], Sequence[Rollout]],
    *,
    samples_per_prompt: int,
    job: Mapping[str, Any],
    meter: Meter,
) -> pd.DataFrame:
    """Rollouts of all problems, in order, going on after the parts that an earlier attempt has finished.

    Args:
        folder: keeps the parts; it vanishes when all are there.
        draw: the rollouts of some problems, in order.
        job: everything the rollouts depend on, as JSON; parts of another job are not used.
        meter: gets the tokens of this attempt, and what is carried from earlier ones.
    """
    count = min(len(problems), len(problems) * samples_per_prompt // PART)
    if count < 2:
        rollouts = draw(problems)
        meter.tokens_generated += sum(rollout.token_count for rollout in rollouts)
        return to_frame(rollouts)
    digest = job_digest(job)
    with work_folder(folder) as work:
        done = _finished(work, count, digest, meter)
        if done:
            say(f"goes on after part {done} of {count}")
        for number in range(done + 1, count + 1):
            rollouts = draw(shard(problems, number, count))
            meter.tokens_generated += sum(rollout.token_count for rollout in rollouts)
            draft = work / "draft"
            draft.mkdir()
            write_rollouts(draft / ROLLOUTS, rollouts)
            seal(draft, number, digest, meter.spent())
            draft.rename(work / _name(number, count))
        return merge_shards([work / _name(number, count) / ROLLOUTS for number in range(1, count + 1)], problems)


def _name(number: int, count: int) -> str:
    return f"{number}-of-{count}"


def _finished(work: Path, count: int, job: str, meter: Meter) -> int:
    """How many parts from the first on can be used, their cost taken over; whatever else lies there is removed."""
    done, kept = 0, set()
    for number in range(1, count + 1):
        part = work / _name(number, count)
        try:
            manifest = require_intact(part)
            if manifest["job"] != job:
                break
            carry(meter, manifest, str(part / MANIFEST))
        except ValueError as error:
            if part.exists():
                say(f"{str(error).split(';')[0]}: not used")
            break
        done = number
        kept.add(part)
    for left in set(work.glob("[!.]*")) - kept:
        shutil.rmtree(left)
    if meter.carried is not None:
        meter.tokens_generated += meter.carried.tokens_generated
    return done
