"""Environment variables of a launcher (torchrun, accelerate) that make a process one of several.

A job of the grid is a single process: with them, accelerate would wait half an hour for the others.
"""

from __future__ import annotations

import os

from g2d.plain import say

NAMES = {
    *(f"{whose}{what}" for whose in ("", "LOCAL_", "GROUP_", "ROLE_") for what in ("RANK", "WORLD_SIZE")),
    *("MASTER_ADDR", "MASTER_PORT", "ROLE_NAME"),
}
PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_")


def of_a_launcher() -> set[str]:
    """The names of such variables in this process's environment."""
    return {name for name in os.environ if name in NAMES or name.startswith(PREFIXES)}


def forget_launcher() -> None:
    """Remove a launcher's variables, and say so where there were several processes."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        say(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} is another launcher's and is not read: training.processes says how "
            "many there are"
        )
    for name in of_a_launcher():
        del os.environ[name]
