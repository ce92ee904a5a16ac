"""Stop requests for a training, and the folder that persists between attempts."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from g2d.jobs.files import disk_errors
from g2d.jobs.orphans import RUN, has_ended
from g2d.plain import say
from g2d.verifier.pool import StopRequest

LOCK = ".lock"  # its user, in four lines


@contextmanager
def work_folder(path: Path) -> Iterator[Path]:
    """Lock a folder for one process, and delete it if the block succeeds.

    Waits for orphans and earlier attempts of this run; a RuntimeError names a process of another run. On NFS without
    lockd, other processes are not detected.
    """
    file = path / LOCK
    while True:
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            lock = open(file, "a+")  # noqa: SIM115 -- held for the block
        try:
            _take(lock, path)
            with suppress(FileNotFoundError):  # otherwise the previous user has finished and removed it
                if os.path.samestat(file.stat(), os.fstat(lock.fileno())):
                    break
        except BaseException:
            lock.close()
            raise
        lock.close()
    try:
        user = os.getpid(), platform.node(), os.environ.get("SLURM_JOB_ID", ""), os.environ.get(RUN, "")
        with disk_errors(path):
            lock.truncate(0)
            lock.write("".join(f"{line}\n" for line in user))
            lock.flush()
        yield path
        for entry in set(path.iterdir()) - {file}:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        file.unlink()  # while locked, so that waiting processes see that it is gone
        lock.close()  # NFS keeps open files
        with suppress(OSError):
            path.rmdir()
    finally:
        lock.close()


def _take(lock: IO[str], path: Path) -> None:
    """Lock the file; return without the lock if the caller should retry, or if there are no locks."""
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except (BlockingIOError, PermissionError):
        pass
    except OSError:
        return
    lock.seek(0)
    pid, host, slurm_job, run = (lock.read().splitlines() + [""] * 4)[:4]
    if slurm_job and slurm_job == os.environ.get("SLURM_JOB_ID") and host != platform.node():
        (path / LOCK).unlink(missing_ok=True)  # requeued: its lost node cannot release the lock
    elif run and (run == os.environ.get(RUN) or has_ended(run)):
        say(f"waiting for process {pid}, an earlier attempt that is saving its step in {path}")
        with suppress(OSError):
            fcntl.lockf(lock, fcntl.LOCK_EX)
    else:
        raise RuntimeError(
            f"{path}: process {pid or '?'} on {host or '?'} works there for another Snakemake: end that, then the same "
            f"command again; should {host or 'its machine'} be lost: rm {path / LOCK}"
        )


class StopRequests(list[str]):
    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.append(signal.Signals(number).name)
        StopRequest.make()
        say(f"{self[-1]}: saving at the next step from which it can go on")
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_requests() -> Iterator[list[str]]:
    """Collect SIGTERM and SIGINT by name; a second Ctrl-C interrupts. Nested blocks share a list."""
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
        if received is not outer:
            StopRequest.forget()
