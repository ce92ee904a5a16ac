"""A job ends with the Snakemake that started it.

After `kill -9` nobody would record what an orphaned job writes: a later change of parameters would not make it stale,
and it would race the same job of the next run. So it asks itself to stop, as a scheduler would: a training saves its
step first, anything else is redone. Inside a cluster's job this watches the Snakemake of that job.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from pathlib import Path

SHELLS = {"sh", "bash", "dash", "zsh"}


def end_with_snakemake() -> None:
    """Have this process receive SIGTERM when its nearest ancestor that is no shell ends; on Linux only."""
    if not hasattr(os, "pidfd_open") or (pid := _starter()) is None:
        return
    try:
        ancestor = os.pidfd_open(pid)
    except OSError:  # it has just ended, or the kernel is too old to watch it
        return

    def wait() -> None:
        select.select([ancestor], [], [])
        with suppress(OSError):  # the terminal may be gone too
            print("the Snakemake that started this job is gone: stopping", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-snakemake", daemon=True).start()


def _starter() -> int | None:
    """Process id of the nearest ancestor that is no shell; None where that cannot be seen."""
    pid = os.getppid()
    while pid > 1:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            return None
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if status["Name"] not in SHELLS:
            return pid
        pid = int(status["PPid"])
    return None
