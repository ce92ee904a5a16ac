"""Variables of torchrun and accelerate, with which a job would wait for other processes."""

from __future__ import annotations

import os

from g2d.plain import say

NAMES = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "ROLE_NAME"),
}
PREFIXES = ("TORCHELASTIC_", "ACCELERATE_", "FSDP_")


def of_a_launcher() -> set[str]:
    return {name for name in os.environ if name in NAMES or name.startswith(PREFIXES)}


def forget_launcher() -> None:
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        say(f"WORLD_SIZE={os.environ['WORLD_SIZE']} is ignored: set training.processes for several processes")
    for name in of_a_launcher():
        del os.environ[name]
