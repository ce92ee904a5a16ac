"""Environment variables of a launcher (torchrun, accelerate), by which a process takes itself for one of several.

A job of the grid is a process of its own: accelerate would wait for the others for half an hour.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from g2d.plain import say

NAMES = {
    *(f"{whose}{what}" for whose in ("", "LOCAL_", "GROUP_", "ROLE_") for what in ("RANK", "WORLD_SIZE")),
    *("MASTER_ADDR", "MASTER_PORT", "ROLE_NAME"),
}
PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_")


def of_a_launcher(environment: Mapping[str, str]) -> set[str]:
    """The names of such variables in an environment."""
    return {name for name in environment if name in NAMES or name.startswith(PREFIXES)}


def forget_launcher() -> None:
    """Remove a launcher's variables, and say so where there were several processes."""
    foreign = of_a_launcher(os.environ)
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        say(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} is another launcher's and is not read: training.processes says how "
            "many there are"
        )
    for name in foreign:
        del os.environ[name]
