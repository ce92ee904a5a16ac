"""What the table of jobs takes from finished results. Everything else in it follows from the configuration.

A finished training keeps the checkpoint that it really continued, and a finished file of rollouts the number of shards
that it was merged from: a K that is added between two others, or another number of shards, makes nothing stale.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from g2d.experiment.sweep import with_choice
from g2d.jobs.cost import read_cost
from g2d.jobs.files import read_json
from g2d.policies.policy import read_policy

exists = os.path.exists  # of thousands of files: a Path for each takes as long again


def continued_step(
    record: str, settings: Callable[[], dict[str, Any]], choices: Iterable[str], planned: int | None
) -> int | None:
    """Return the K of the checkpoint that a training continues: of a finished one with these settings, filled in from
    the files of a sweep's choices, what its record says; otherwise as planned."""
    if not exists(record):
        return planned
    finished, expected = read_policy(record), settings()
    for file in filter(exists, choices):
        expected = with_choice(expected, read_json(Path(file)))
    return finished.continued_from if finished.settings == expected else planned


def n_shards(bill: str, folder: str, planned: int) -> int:
    """Return the number of shards below a folder that a finished file was merged from, by its bill; otherwise as
    planned."""
    if not exists(bill):
        return planned
    return sum(record.job.startswith(f"{folder}/") for record in read_cost(bill).ancestry)
