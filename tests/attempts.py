from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from g2d.jobs.attempts import SILENT_S, JobAttempt, read_attempt


def read_attempts(folder: str | Path) -> list[JobAttempt]:
    """Return all ended attempts below a folder, sorted by stage, job and start.

    An attempt without a final record was killed if its job was attempted again or its record is older than `SILENT_S`.
    """
    attempts = sorted(
        map(read_attempt, Path(folder).rglob("*.json")), key=lambda attempt: (attempt.cost.key, attempt.started)
    )
    last = {attempt.cost.key: attempt for attempt in attempts}
    ended = []
    for attempt in attempts:
        if attempt.status != "running":
            ended.append(attempt)
        elif last[attempt.cost.key] is not attempt or time.time() - attempt.updated > SILENT_S:
            ended.append(replace(attempt, status="killed"))
    return ended
