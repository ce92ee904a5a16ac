"""End a job with the Snakemake that started it: after `kill -9` the next run would write the same files.

Snakemake is not identified as the parent process, because it may end during the job's imports.
"""

from __future__ import annotations

import os
import platform
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from g2d.plain import say

RUN = "G2D_RUN"  # name of the Snakemake that runs this job; set in common.smk


@cache
def this_machine() -> str:
    """Return a name for one boot and PID namespace, within which PIDs are unique."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return platform.node()


def name_of(pid: int) -> str:
    """Return a name that no other process ever has; raises ProcessLookupError."""
    return f"{pid} {_ticks(pid)} {this_machine()}"


def watched(name: str) -> int | None:
    """Return a file descriptor that is readable once the process ends; raises ProcessLookupError if it has ended.

    None for a process of another machine, or without `pidfd_open`.
    """
    pid, ticks, machine = name.split(" ", 2)
    if not hasattr(os, "pidfd_open") or machine != this_machine():
        return None
    try:
        process = os.pidfd_open(int(pid))
    except ProcessLookupError:
        raise
    except OSError:  # the kernel is too old
        return None
    # While the descriptor is open, no other process gets the PID. A zombie has ended too.
    if select.select([process], [], [], 0)[0] or _ticks(int(pid)) != ticks:
        os.close(process)
        raise ProcessLookupError(f"process {pid} has ended")
    return process


def has_ended(name: str) -> bool | None:
    try:
        process = watched(name)
    except ProcessLookupError:
        return True
    if process is None:
        return None
    os.close(process)
    return False


def when_ends(name: str, then: Callable[[], object]) -> None:
    """Call a function in a thread once the process ends; never if `watched` returns None."""
    process = watched(name)
    if process is None:
        return

    def wait() -> None:
        select.select([process], [], [])
        then()

    threading.Thread(target=wait, name="when-ends", daemon=True).start()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def end_with_snakemake() -> None:
    """Send this process SIGTERM when its Snakemake ends; exit if it has ended."""
    global bound  # noqa: PLW0603 -- a process has one
    if RUN not in os.environ or bound == os.getpid():
        return

    def say_and_stop() -> None:
        with suppress(OSError):  # the terminal may be gone too
            say("the Snakemake that started this job is gone: stopping")
        stop()

    try:
        when_ends(os.environ[RUN], say_and_stop)
    except ProcessLookupError:
        sys.exit("the Snakemake that started this job is gone: not begun")
    bound = os.getpid()


bound: int | None = None  # a fork has another PID


def _ticks(pid: int) -> str:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            raise ProcessLookupError(f"there is no process {pid}") from None
        return ""  # not Linux
    return status.rpartition(")")[2].split()[19]  # the command in parentheses may have any text
