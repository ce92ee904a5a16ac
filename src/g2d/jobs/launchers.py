"""What a launcher (torchrun, accelerate, somebody's own) writes into the environment of one of several processes.

A job of the grid is one process, whatever its own processes are: what it inherits of this was meant for others, and
accelerate would wait for them for half an hour.
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
    """The names in an environment by which a process takes itself for one of several."""
    return {name for name in environment if name in NAMES or name.startswith(PREFIXES)}


def forget_launcher() -> None:
    """Be a process alone, and say so where the environment said otherwise."""
    foreign = of_a_launcher(os.environ)
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        say(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} is another launcher's and is not read: training.processes says how "
            "many there are"
        )
    for name in foreign:
        del os.environ[name]
