"""Values that the table of jobs reads from finished results, so that another K makes nothing stale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from g2d.policies.policy import read_policy


def continued_step(record: str, settings: Callable[[], dict[str, Any]], planned: int | None) -> int | None:
    """Return the K of the checkpoint that a training continues: the recorded one if finished with these settings."""
    if not Path(record).exists():
        return planned
    finished = read_policy(record)
    return finished.continued_from if finished.settings == settings() else planned
