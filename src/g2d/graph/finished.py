"""All that the table of jobs reads from finished results. Everything else follows from the configuration.

A finished training keeps the checkpoint that it continued, and a finished file of rollouts its number of shards. So a K
that is added between two others, or another number of shards, makes nothing stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from g2d.experiment.sweep import with_choice
from g2d.jobs import storage
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies.policy import read_policy


def continued_step(
    record: str, settings: Callable[[], dict[str, Any]], choices: Iterable[str], planned: int | None
) -> int | None:
    """Return the K of the checkpoint that a training continues.

    A finished training with these settings, filled in from a sweep's choices, keeps the K in its record; otherwise it
    is the planned one.
    """
    if (found := storage.find(record)) is None:
        return planned
    finished, expected = read_policy(found), settings()
    for file in filter(None, map(storage.find, choices)):
        expected = with_choice(expected, read_json(Path(file)))
    return finished.continued_from if finished.settings == expected else planned


def n_shards(bill: str, folder: str, planned: int) -> int:
    """Return the number of shards that a finished file was merged from, according to its costs; otherwise the planned
    one."""
    if (found := storage.find(bill)) is None:
        return planned
    return sum(record.job.startswith(f"{folder}/") for record in read_cost(found).ancestry)
