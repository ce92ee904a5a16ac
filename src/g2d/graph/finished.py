"""Values that the table of jobs reads from finished results, so that another K or number of shards makes nothing
stale.
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


def continued_step(
    record: str, settings: Callable[[], dict[str, Any]], choices: Iterable[str], planned: int | None
) -> int | None:
    """Return the K of the checkpoint that a training continues: the recorded one if finished with these settings."""
    if not Path(record).exists():
        return planned
    finished, expected = read_policy(record), settings()
    for file in filter(os.path.exists, choices):
        expected = with_choice(expected, read_json(Path(file)))
    return finished.continued_from if finished.settings == expected else planned


def n_shards(bill: str, folder: str, planned: int) -> int:
    """Return the number of shards: of a finished file, the one in its costs, otherwise the planned one."""
    if not Path(bill).exists():
        return planned
    return sum(record.job.startswith(f"{folder}/") for record in read_cost(bill).ancestry)
