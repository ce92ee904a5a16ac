"""Time limits that jobs request from a cluster."""

from __future__ import annotations

import os
from math import ceil

from g2d.forecast.hours import Finished, GpuJob, hours_of

MARGIN = 3  # a guess is within this factor
LEAST = 30  # minutes, for imports and the start of an engine on a busy file system
LONGEST = "G2D_LONGEST_RUN"  # minutes, by the profile of a cluster


def run_minutes(work: GpuJob, finished: Finished, attempt: int) -> int:
    """Return the time limit of a job: three times its predicted hours, times the attempt.

    Args:
        finished: jobs whose hours are preferred to a guess.
        attempt: from 1. A job that exceeds its limit continues in the next attempt.
    """
    hours = hours_of(work, finished) or 0.0
    minutes = attempt * max(LEAST, ceil(60 * MARGIN * hours))
    longest = os.environ.get(LONGEST)
    if longest is None:
        return minutes
    return min(minutes, int(longest))
