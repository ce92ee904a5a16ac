"""Every attempt at every job, also those that left no result: what the grid really cost.

Snakemake deletes the outputs of a job that fails, its bill among them, so every attempt has a record of its own under
`results/attempts/`, which is no output and no input. It is rewritten every `BEAT_S` seconds, so that of an attempt that
was killed nearly all is known. Files are named after job, time, host and process: no two attempts write to the same
one.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from g2d.jobs.cost import Cost, JobKey, Meter, Progress, merge_costs
from g2d.jobs.files import parse_record, read_json, write_json
from g2d.jobs.orphans import this_machine
from g2d.plain import say

Status = Literal["ok", "failed", "stopped", "killed", "running"]
ENDED_BADLY: tuple[Status, ...] = ("failed", "stopped", "killed")

started_by: int | None = None  # the process that waits for this one, where that is not Snakemake (`shared_imports`)
BEAT_S = 30.0  # between two signs of life
SILENT_S = 4 * BEAT_S  # after which an attempt counts as ended; generous, for a slow shared file system


class Stopped(BaseException):
    """A signal asked the job to stop. No library may mistake it for an error that it can handle."""


@dataclass(frozen=True, slots=True)
class Process:
    """Where an attempt is made, so that others can tell whether it still is."""

    pid: int
    machine: str  # what `pid` is a number on: a boot of a machine, or of a container on it (`this_machine`)
    slurm_job: str | None  # its number, where Slurm started it


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job."""

    status: Status  # stopped: by SIGTERM or Ctrl-C; killed: no final record, so its cost is that of its last update
    cost: Cost
    host: str
    started: float  # seconds since the epoch
    updated: float  # the same, of the last update
    start_up_s: float  # from the start of the process to the start of its stage: interpreter and imports
    carried: Cost | None = None  # what earlier attempts had spent up to the checkpoint that this one went on from
    progress: Progress | None = None  # of a training, at the last update
    process: Process | None = None  # not in records of 0.1.0

    @property
    def bill(self) -> Cost:
        """What the result of this attempt cost: its own part and what it went on from."""
        return merge_costs(self.carried, self.cost)


def attempt_file(log: str | Path) -> Path:
    """Where the attempt that this process is making at a job is recorded, from the name of the job's log."""
    folder, found, job = str(log).partition("logs/")
    if not found:
        folder, job = "", Path(log).name
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return Path(f"{folder}attempts/{job.removesuffix('.log')}.{stamp}-{platform.node()}-{os.getpid()}.json")


@contextmanager
def recorded(file: Path, meter: Meter) -> Iterator[None]:
    """Record the block as an attempt, from its begin to its end.

    A record that cannot be written is reported and does not stop the job.
    """
    started = time.time()
    start_up_s = max(0.0, started - psutil.Process(started_by).create_time())
    process = Process(os.getpid(), this_machine(), os.environ.get("SLURM_JOB_ID"))

    def write(status: Status, cost: Cost) -> None:
        now = time.time()
        attempt = Attempt(
            status, cost, platform.node(), started, now, start_up_s, meter.carried, meter.progress, process
        )
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
        yield
        status = "ok"
    except (Stopped, KeyboardInterrupt):
        status = "stopped"
        raise
    finally:
        ended.set()
        beats.join()
        write(status, meter.end())


def is_alive(attempt: Attempt) -> bool | None:
    """Whether an attempt without a final record is still running; None where it cannot be known here.

    On the machine where it was begun its process tells. Elsewhere only its record does: one that was updated within
    `SILENT_S` seconds counts as running, and of others nothing is known.
    """
    process = attempt.process
    if process is not None and process.machine == this_machine():
        try:
            found = psutil.Process(process.pid)
            # A process that is younger than the attempt has only got the number of the one that made it.
            return found.create_time() <= attempt.started + 1 and found.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            if not _is_hidden(process.pid):
                return False
    return True if time.time() - attempt.updated <= SILENT_S else None


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process of another user, which a /proc mounted with `hidepid` does not show."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


def read_attempts(folder: str | Path) -> list[Attempt]:
    """All attempts below a folder that are over, by stage and job, then oldest first.

    An attempt without a final record was killed if the job was attempted again or if it has been silent for `SILENT_S`
    seconds. Otherwise it is still running, and is left out.

    Raises:
        ValueError: a file is no record of an attempt; the message names it.
    """
    attempts = sorted(
        map(read_attempt, Path(folder).rglob("*.json")),
        key=lambda attempt: (attempt.cost.key, attempt.started),
    )
    over = []
    for i, attempt in enumerate(attempts):
        again = any(later.cost.key == attempt.cost.key for later in attempts[i + 1 : i + 2])
        if attempt.status != "running":
            over.append(attempt)
        elif again or time.time() - attempt.updated > SILENT_S:
            over.append(replace(attempt, status="killed"))
    return over


def kept(attempts: Iterable[Attempt]) -> dict[JobKey, Attempt]:
    """The attempt whose result is there: the last that succeeded."""
    return {attempt.cost.key: attempt for attempt in attempts if attempt.status == "ok"}


def lost_device_s(attempts: Iterable[Attempt]) -> dict[JobKey, float]:
    """The device seconds of all attempts that are on no bill.

    What an attempt did before the checkpoint that the next one went on from is not lost: the result's bill has it. A
    killed attempt may have spent more up to that checkpoint than its last update says; then nothing of it
    counts as lost.
    """
    attempts = list(attempts)
    spent: dict[JobKey, float] = {}
    for attempt in attempts:
        spent[attempt.cost.key] = spent.get(attempt.cost.key, 0.0) + attempt.cost.device_s
    billed = {job: attempt.bill.device_s for job, attempt in kept(attempts).items()}
    return {job: max(0.0, seconds - billed.get(job, 0.0)) for job, seconds in spent.items()}


def lost(attempts: Iterable[Attempt]) -> dict[JobKey, list[Attempt]]:
    """The attempts whose result is not there: those that ended badly, and those that a later one repeated.

    A later attempt may have gone on from what they left: `lost_device_s` says what was in vain.
    """
    attempts = list(attempts)
    results = kept(attempts)
    found: dict[JobKey, list[Attempt]] = {}
    for attempt in attempts:
        if results.get(attempt.cost.key) is not attempt:
            found.setdefault(attempt.cost.key, []).append(attempt)
    return found


_NAME = re.compile(r"(.*)\.\d{8}T\d{6}-.*-\d+\.json")  # what `attempt_file` makes of `x.log`


def log_of(record: Path, folder: Path) -> Path | None:
    """The log of the job that an attempt was made at: the reverse of `attempt_file`.

    Args:
        record: of the attempt.
        folder: `attempts`, in the results folder.

    Returns:
        None where the record has another name than `attempt_file` gives.
    """
    named = _NAME.fullmatch(record.name)
    return folder.with_name("logs") / record.parent.relative_to(folder) / f"{named[1]}.log" if named else None


def read_attempt(file: str | Path) -> Attempt:
    """The record of one attempt, as it stands in its file: of one that has no last word, `running`.

    Raises:
        ValueError: it is none; the message names it.
    """
    values = read_json(file)
    parts: dict[str, type] = {"cost": Cost, "carried": Cost, "progress": Progress, "process": Process}
    try:
        made: dict[str, object] = {
            name: parse_record(kind, values[name], name) for name, kind in parts.items() if values.get(name)
        }
        return parse_record(Attempt, values | made, "record")
    except ValueError as error:
        raise ValueError(f"{file}: not a record of an attempt ({error}); delete it and its cost is forgotten") from None
