"""How a training is asked to stop, and the folder that outlives an attempt."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from g2d.jobs.disk import names_the_disk


@contextmanager
def work_folder(path: Path) -> Iterator[Path]:
    """A folder that one process at a time works in; it vanishes when the block succeeds and is kept when it fails.

    Another process may still be there for the length of one step: the orphan of a run that was killed. Where a file
    system cannot lock a folder (NFS), nobody waits.
    """
    while True:
        with names_the_disk(path):
            path.mkdir(parents=True, exist_ok=True)
        folder = os.open(path, os.O_RDONLY)
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(folder)):
                break
        os.close(folder)  # whoever had it was done with it and has removed it
    try:
        yield path
        shutil.rmtree(path)
    finally:
        os.close(folder)


class StopRequests(list[str]):
    """The names of the signals that asked to stop; it is their handler too."""

    def __call__(self, number: int, frame: Any) -> None:
        self.append(signal.Signals(number).name)
        print(f"{self[-1]}: saving at the end of this step", flush=True)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_requests() -> Iterator[list[str]]:
    """Collect SIGTERM and SIGINT by name instead of dying of them; a second Ctrl-C interrupts at once.

    A block inside another one adds to the same list, so whoever runs several trainings sees what reached any of them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    outer = signal.getsignal(signal.SIGTERM)
    received = outer if isinstance(outer, StopRequests) else StopRequests()
    before = {number: signal.signal(number, received) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
