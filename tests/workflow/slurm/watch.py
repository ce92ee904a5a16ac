"""Print what `g2d status` knows of a grid as JSON, a line a second, until Ctrl-C."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from g2d.status.states import Folder, JobState


def job(state: JobState) -> dict[str, Any]:
    assert state.last is not None
    return {
        "job": state.job.name,
        "state": state.state,
        "attempt": len(state.attempts),
        "steps": state.position[1] if state.position else None,
        "slurm_job": state.last.process.slurm_job,
    }


with suppress(KeyboardInterrupt):
    grid = Folder(Path("results"))
    while True:
        look = grid.look()
        seen = {
            "finished": look.counts["finished"],
            "attempted": [job(state) for state in look.states if state.last and state.state != "finished"],
            "unreadable": list(look.unreadable),
            "device_hours": look.device_hours,
        }
        print(json.dumps(seen), flush=True)
        time.sleep(1)
