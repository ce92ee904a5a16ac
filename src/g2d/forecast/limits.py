"""Time limits that jobs request from a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import ceil

from g2d.forecast.hours import GpuJob, hours_of

MARGIN = 3  # a guess is within this factor
LEAST = 30  # minutes, for imports and the start of an engine on a busy file system
LONGEST = "G2D_LONGEST_RUN"  # minutes, by the profile of a cluster


def run_minutes(work: GpuJob, means: Mapping[tuple[str, str], float], attempt: int) -> int:
    """Return the time limit of a job: three times its predicted hours, times the attempt.

    Args:
        means: measured hours per unit, as in `hours_of`.
        attempt: from 1. A job that exceeds its limit continues in the next attempt.
    """
    hours = hours_of(work, means) or 0.0
    minutes = attempt * max(LEAST, ceil(60 * MARGIN * hours))
    longest = os.environ.get(LONGEST)
    if longest is None:
        return minutes
    return min(minutes, int(longest))
