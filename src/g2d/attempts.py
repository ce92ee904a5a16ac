"""Every attempt at every job, also those that left no result: what the grid really cost.

Snakemake deletes the outputs of a job that fails, its bill among them. So every attempt keeps a record of its own under
`results/attempts/`, which is no output and nobody's input. The record is rewritten while the job runs: an attempt that
had no time for a last word (kill -9, a lost node, the kernel short of memory) leaves what it had cost at its last sign
of life, at most `BEAT_S` seconds before its end.

One file an attempt, complete or absent, named after the job, the time, the host and the process: attempts at the same
job on different nodes never write to the same file.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from g2d.cost import Cost, Meter, parse_cost
from g2d.files import read_json, write_json

Status = Literal["ok", "failed", "stopped", "killed", "running"]
ENDED_BADLY: tuple[Status, ...] = ("failed", "stopped", "killed")

started_by: int | None = None  # the process that waits for this one, where that is not Snakemake (`g2d.shared_imports`)
BEAT_S = 30.0  # between two signs of life
SILENT_S = 4 * BEAT_S  # after which nobody is believed to be alive; generous, for a slow shared file system


class Stopped(BaseException):
    """A signal asked the job to stop. No library may mistake it for an error that it can handle."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job."""

    status: Status  # stopped: by SIGTERM or Ctrl-C; killed: no last word, so its cost is that of its last sign of life
    cost: Cost
    host: str
    started: float  # seconds since the epoch
    updated: float  # the same, of the last sign of life
    start_up_s: float  # from the start of the process to the start of its stage: interpreter and imports


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

    A record that cannot be written is reported and costs nobody the result.
    """
    started = time.time()
    start_up_s = max(0.0, started - psutil.Process(started_by).create_time())

    def write(status: Status, cost: Cost) -> None:
        try:
            write_json(file, asdict(Attempt(status, cost, platform.node(), started, time.time(), start_up_s)))
        except OSError as error:
            with suppress(OSError):  # the log may be on the same full disk
                print(f"{file}: this attempt is not recorded: {error}", flush=True)

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
        write(status, meter.measured())


def read_attempts(folder: str | Path) -> list[Attempt]:
    """All attempts below a folder that are over, by job, then oldest first.

    An attempt without a last word was killed if the job was attempted again or if it has been silent for `SILENT_S`
    seconds. Otherwise it is still running, and is left out.

    Raises:
        ValueError: a file is no record of an attempt; the message names it.
    """
    attempts = sorted(map(_read, Path(folder).rglob("*.json")), key=lambda attempt: (attempt.cost.job, attempt.started))
    over = []
    for i, attempt in enumerate(attempts):
        again = i + 1 < len(attempts) and attempts[i + 1].cost.job == attempt.cost.job
        if attempt.status != "running":
            over.append(attempt)
        elif again or time.time() - attempt.updated > SILENT_S:
            over.append(replace(attempt, status="killed"))
    return over


def kept(attempts: Iterable[Attempt]) -> dict[str, Attempt]:
    """By job, the attempt whose result is there: the last that succeeded."""
    return {attempt.cost.job: attempt for attempt in attempts if attempt.status == "ok"}


def lost(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    """By job, the attempts whose result is not there: those that ended badly, and those that a later one repeated."""
    attempts = list(attempts)
    results = kept(attempts)
    found: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if results.get(attempt.cost.job) is not attempt:
            found.setdefault(attempt.cost.job, []).append(attempt)
    return found


def _read(file: Path) -> Attempt:
    values = read_json(file)
    try:
        return Attempt(**values | {"cost": parse_cost(values["cost"], str(file))})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{file}: not a record of an attempt ({error}); delete it and its cost is forgotten") from None
