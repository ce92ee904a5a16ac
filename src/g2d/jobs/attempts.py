"""Records of attempts, under `results/attempts/`: Snakemake deletes the outputs of a failed job."""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import psutil

from g2d.jobs.cost import Cost, Meter, Progress
from g2d.jobs.files import parse_record, read_json, write_json
from g2d.jobs.orphans import this_machine
from g2d.plain import say

Status = Literal["ok", "failed", "stopped", "killed", "running"]
BEAT_S = 30.0
SILENT_S = 4 * BEAT_S  # an attempt without an update counts as ended; long, for slow shared file systems


class Stopped(BaseException):
    """A signal stopped the job. A BaseException, so that no library handles it as an error."""

    saved = False  # its work was kept


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    machine: str  # `this_machine`
    slurm_job: str | None


@dataclass(frozen=True, slots=True)
class JobAttempt:
    status: Status  # killed: without a final record, so its cost is from the last update
    cost: Cost
    host: str
    started: float
    updated: float
    process: Process
    carried: Cost | None = None
    progress: Progress | None = None  # training's progress at the last update


def attempt_file(log: str | Path) -> Path:
    folder, separator, job = str(log).partition("logs/")
    if not separator:
        folder = ""
        job = Path(log).name
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return Path(f"{folder}attempts/{job.removesuffix('.log')}.{stamp}-{platform.node()}-{os.getpid()}.json")


@contextmanager
def recorded(file: Path, meter: Meter) -> Iterator[Meter]:
    """Record the block as an attempt. A record that cannot be written does not stop the job."""
    started = time.time()
    process = Process(os.getpid(), this_machine(), os.environ.get("SLURM_JOB_ID"))

    def write(status: Status, cost: Cost) -> None:
        now = time.time()
        attempt = JobAttempt(status, cost, platform.node(), started, now, process, meter.carried, meter.progress)
        try:
            write_json(file, asdict(attempt))
        except OSError as error:
            with suppress(OSError):  # the log may be on the same full disk
                say(f"{file}: this attempt is not recorded: {error}")

    def beat() -> None:
        while not ended.wait(BEAT_S):
            write("running", meter.so_far())

    ended = threading.Event()
    beats = threading.Thread(target=beat, name="attempt", daemon=True)
    write("running", meter.so_far())
    beats.start()
    status: Status = "failed"
    try:
        yield meter
        status = "ok"
    except (Stopped, KeyboardInterrupt):
        status = "stopped"
        raise
    finally:
        ended.set()
        beats.join()
        # Devices are read last: the block itself may import torch.
        write(status, meter.end())


def is_alive(attempt: JobAttempt) -> bool | None:
    """Return whether an attempt without a final record is running; None if unknown."""
    process = attempt.process
    if process.machine == this_machine():
        try:
            running = psutil.Process(process.pid)
            began: float = running.create_time()
            if began > attempt.started + 1:  # another process has reused the PID
                return False
            is_zombie: bool = running.status() == psutil.STATUS_ZOMBIE
            return not is_zombie
        except psutil.NoSuchProcess:
            if not _is_hidden(process.pid):
                return False
    if time.time() - attempt.updated <= SILENT_S:
        return True
    return None


def _is_hidden(pid: int) -> bool:
    """Return whether the process belongs to another user, hidden by a /proc mounted with `hidepid`."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


_NAME = re.compile(r"(.*)\.\d{8}T\d{6}-.*-\d+\.json")


def log_of(record: Path, folder: Path) -> Path | None:
    """Return the log of the job that a record in `folder` is about; None for a file with another name."""
    named = _NAME.fullmatch(record.name)
    if named is None:
        return None
    return folder.with_name("logs") / record.parent.relative_to(folder) / f"{named[1]}.log"


def read_attempt(file: str | Path) -> JobAttempt:
    """Read one record; a ValueError names the file."""
    values = read_json(file)
    try:
        return parse_record(JobAttempt, values, "record")
    except ValueError as error:
        raise ValueError(
            f"{file}: not a record of an attempt ({error}): delete it; its cost is then not counted"
        ) from None
