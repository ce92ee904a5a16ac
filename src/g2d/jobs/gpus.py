"""Locks on GPUs, for parallel jobs on one machine."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from g2d.jobs.run_process import own_folder
from g2d.plain import say

VISIBLE = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia/gpus")
POLL_S = 1.0

_held: list[ExitStack] = []  # held until this process and its forked workers end


def visible() -> list[str]:
    given = os.environ.get(VISIBLE)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    n = len(list(DRIVER.glob("*")))
    return [str(number) for number in range(n)]


def take(wanted: int) -> list[str]:
    """Wait for and lock this many GPUs, or as many as the process sees; hide the others before torch is imported."""
    # Otherwise `is_available` initialises CUDA, and forks cannot use it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if wanted == 0:
        return []
    given = visible()
    if wanted >= len(given):
        return given
    free = _locked(given, wanted)
    if not free:
        say(f"waiting for {wanted} of the GPUs {', '.join(given)}: other jobs have them", file=sys.stderr)
    while not free:
        time.sleep(POLL_S)
        free = _locked(given, wanted)
    os.environ[VISIBLE] = ",".join(free)
    return free


def _locked(given: list[str], wanted: int) -> list[str]:
    """Lock the first free GPUs, or none if too few are free: two jobs never deadlock."""
    folder = own_folder()
    free = []
    with ExitStack() as files:
        for name in given:
            # Slurm numbers the GPUs of every allocation from 0.
            identity = f"{os.environ.get('SLURM_JOB_ID', 'here')}-{name}".replace("/", "-")
            lock = files.enter_context(open(folder / f"gpu-{identity}.lock", "w"))
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free.append(name)
            if len(free) == wanted:
                _held.append(files.pop_all())
                return free
    return []
