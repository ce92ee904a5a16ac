"""Records of attempts, under `results/attempts/`: Snakemake deletes the outputs of a failed job."""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections import defaultdict
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

started_by: int | None = None  # the process that waits for this one, if not Snakemake (`shared_imports`)
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
class Attempt:
    status: Status  # killed: without a final record, so its cost is from the last update
    cost: Cost
    host: str
    started: float
    updated: float
    start_up_s: float
    carried: Cost | None = None
    progress: Progress | None = None  # training's progress at the last update
    process: Process | None = None  # not in records of 0.1.0

    @property
    def bill(self) -> Cost:
        return merge_costs(self.carried, self.cost)


def attempt_file(log: str | Path) -> Path:
    folder, separator, job = str(log).partition("logs/")
    if not separator:
        folder, job = "", Path(log).name
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return Path(f"{folder}attempts/{job.removesuffix('.log')}.{stamp}-{platform.node()}-{os.getpid()}.json")


@contextmanager
def recorded(file: Path, meter: Meter) -> Iterator[Meter]:
    """Record the block as an attempt. A record that cannot be written does not stop the job."""
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


def is_alive(attempt: Attempt) -> bool | None:
    """Return whether an attempt without a final record is running; None if unknown."""
    process = attempt.process
    if process is not None and process.machine == this_machine():
        try:
            running = psutil.Process(process.pid)
            # A process younger than the attempt has reused the PID.
            return running.create_time() <= attempt.started + 1 and running.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            if not _is_hidden(process.pid):
                return False
    return True if time.time() - attempt.updated <= SILENT_S else None


def _is_hidden(pid: int) -> bool:
    """Return whether the process belongs to another user, hidden by a /proc mounted with `hidepid`."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


def read_attempts(folder: str | Path) -> list[Attempt]:
    """Return all ended attempts below a folder, sorted by stage, job and start.

    An attempt without a final record was killed if its job was attempted again or its record is older than `SILENT_S`.
    """
    attempts = sorted(
        map(read_attempt, Path(folder).rglob("*.json")), key=lambda attempt: (attempt.cost.key, attempt.started)
    )
    last = {attempt.cost.key: attempt for attempt in attempts}
    ended = []
    for attempt in attempts:
        if attempt.status != "running":
            ended.append(attempt)
        elif last[attempt.cost.key] is not attempt or time.time() - attempt.updated > SILENT_S:
            ended.append(replace(attempt, status="killed"))
    return ended


def kept(attempts: Iterable[Attempt]) -> dict[JobKey, Attempt]:
    return {attempt.cost.key: attempt for attempt in attempts if attempt.status == "ok"}


def lost_device_s(attempts: Iterable[Attempt]) -> dict[JobKey, float]:
    """Return each job's device seconds that its cost file does not contain."""
    attempts = list(attempts)
    spent: dict[JobKey, float] = defaultdict(float)
    for attempt in attempts:
        spent[attempt.cost.key] += attempt.cost.device_s
    billed = {job: attempt.bill.device_s for job, attempt in kept(attempts).items()}
    return {job: max(0.0, seconds - billed.get(job, 0.0)) for job, seconds in spent.items()}


def lost(attempts: Iterable[Attempt]) -> dict[JobKey, list[Attempt]]:
    attempts = list(attempts)
    results = kept(attempts)
    lost_attempts: dict[JobKey, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if results.get(attempt.cost.key) is not attempt:
            lost_attempts[attempt.cost.key].append(attempt)
    return lost_attempts


_NAME = re.compile(r"(.*)\.\d{8}T\d{6}-.*-\d+\.json")


def log_of(record: Path, folder: Path) -> Path | None:
    named = _NAME.fullmatch(record.name)
    return folder.with_name("logs") / record.parent.relative_to(folder) / f"{named[1]}.log" if named else None


def read_attempt(file: str | Path) -> Attempt:
    """Read one record; a ValueError names the file."""
    values = read_json(file)
    try:
        return parse_record(Attempt, values, "record")
    except ValueError as error:
        raise ValueError(
            f"{file}: not a record of an attempt ({error}): delete it; its cost is then not counted"
        ) from None
