"""State of every job, and of the grid at one moment, derived from the files of a results folder.

A job has finished if its outputs exist; otherwise its state follows from its attempts.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from g2d.checks.load import read_record
from g2d.config.sections import Config
from g2d.forecast.devices import CARD, Device, device_here
from g2d.forecast.hours import Line, hours_left
from g2d.grid.grid import Grid
from g2d.jobs.attempts import JobAttempt, is_alive, log_of, read_attempt
from g2d.jobs.recover import is_locked
from g2d.jobs.snakemake_jobs import JOBS, PlannedJob, read_jobs
from g2d.jobs.stage import DETAILS
from g2d.plain import plain

State = Literal[
    "finished",  # its files are there
    "running",  # its process runs, or gave a sign of life in the last two minutes
    "failed",  # the last attempt ended with an error
    "stopped",  # the last attempt was stopped (SIGTERM, Ctrl-C); a training resumes from its checkpoint
    "killed",  # the last attempt ended without a final record (kill -9, out of memory)
    "silent",  # started on another machine, and no sign of life for two minutes: killed, or cut off from these files
    "missing",  # the last attempt ended well, and its files are not there
    "waiting",  # no attempt has begun: not due yet, or in the queue of a cluster
]
TROUBLE: tuple[State, ...] = ("failed", "killed", "silent", "stopped", "missing")
TAIL = 8192  # bytes of a log


@dataclass(frozen=True, slots=True)
class Recorded:
    file: str
    attempt: JobAttempt


@dataclass(slots=True)
class Records:
    folder: Path
    unreadable: list[str] = field(default_factory=list)  # error messages
    _over: dict[str, Recorded] = field(default_factory=dict)

    def read(self) -> dict[tuple[str, str], list[Recorded]]:
        self.unreadable = []
        by_job: dict[tuple[str, str], list[Recorded]] = {}
        for path in _json_files(self.folder):
            recorded = self._over.get(path)
            if recorded is None:
                try:
                    recorded = Recorded(path, read_attempt(path))
                except FileNotFoundError:  # deleted in the meantime
                    continue
                except (OSError, ValueError) as error:
                    self.unreadable.append(str(error))
                    continue
                if recorded.attempt.status != "running":
                    self._over[path] = recorded
            by_job.setdefault(recorded.attempt.cost.key, []).append(recorded)
        for attempts in by_job.values():
            attempts.sort(key=lambda recorded: recorded.attempt.started)
        return by_job


def _json_files(folder: Path) -> Iterator[str]:
    """List JSON files, three times as fast as `Path.rglob`. Drafts begin with a dot."""
    for place, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".json") and not name.startswith("."):
                yield f"{place}/{name}"


@dataclass(frozen=True, slots=True)
class JobState:
    job: PlannedJob
    state: State
    attempts: tuple[Recorded, ...] = ()
    kept_step: int | None = None  # newest checkpoint, if the training does not run

    @property
    def last(self) -> JobAttempt | None:
        if not self.attempts:
            return None
        return self.attempts[-1].attempt

    @property
    def position(self) -> tuple[int, int] | None:
        """The step of a training, and its number of steps."""
        if self.last is None or self.last.progress is None:
            return None
        step = self.last.progress.step if self.state == "running" else self.kept_step
        if step is None:
            return None
        return step, self.last.progress.steps


# A state follows from files, in this order: a record without an end whose process lives (running), the outputs
# (finished), no record at all (waiting), and the last record. The process is looked up before the files: a job that
# ends in between has written them. Snakemake is not needed, so this also works after a kill and on another machine.


def job_states(
    results: Path, jobs: Sequence[PlannedJob], records: Mapping[tuple[str, str], list[Recorded]]
) -> list[JobState]:
    states = []
    for job in jobs:
        attempts = tuple(records.get((job.rule, job.name), ()))
        states.append(_state(str(results), job, attempts))
    return states


def _state(results: str, job: PlannedJob, attempts: tuple[Recorded, ...]) -> JobState:
    last = attempts[-1].attempt if attempts else None
    alive: bool | None = False  # None: unknown, on another machine
    if last is not None and last.status == "running":
        alive = is_alive(last)
        if not alive:
            attempts = (*attempts[:-1], _read_again(attempts[-1]))
            last = attempts[-1].attempt
    if alive:
        return JobState(job, "running", attempts)
    if _is_there(results, job):
        return JobState(job, "finished", attempts)
    if last is None:
        return JobState(job, "waiting")
    if last.status == "ok":
        return JobState(job, _after_final_record(results, job, last), attempts)
    state: State
    if last.status != "running":
        state = last.status
    elif alive is None:
        state = "silent"
    else:
        state = "killed"
    work = Path(_inside(results, job.name)).parent / "work"
    return JobState(job, state, attempts, _newest_checkpoint(work))


def _read_again(recorded: Recorded) -> Recorded:
    """Read the record of a job that does not run: it may have ended since its record was read."""
    try:
        return Recorded(recorded.file, read_attempt(recorded.file))
    except (OSError, ValueError):
        return recorded


def _after_final_record(results: str, job: PlannedJob, last: JobAttempt) -> State:
    """Return the state of a job without its files: it writes its costs after the final record of its attempt."""
    if is_alive(last):
        return "running"
    if _is_there(results, job):  # written since the first look
        return "finished"
    return "missing"


def _is_there(results: str, job: PlannedJob) -> bool:
    exists = os.path.exists  # twice as fast as `Path` for thousands of files
    return all(exists(_inside(results, output)) for output in job.done)


def _inside(results: str, path: str) -> str:
    return f"{results}/{path.removeprefix('results/')}"


def _newest_checkpoint(work: Path) -> int | None:
    steps = []
    for folder in work.glob("step-*"):
        step = folder.name.removeprefix("step-")
        if step.isdecimal():
            steps.append(int(step))
    return max(steps, default=None)


# ----------------------------------------------------------------------------------------------- at one moment


@dataclass(frozen=True)
class Snapshot:
    results: Path
    title: str
    now: float  # seconds since the epoch
    states: Sequence[JobState]
    device_hours: float  # hours of all attempts, also of failed ones and of jobs that have left the grid
    to_go: Sequence[Line]  # hours of unfinished jobs on a device, running ones as a whole
    device: Device
    is_locked: bool  # a running or killed Snakemake has the lock
    unreadable: Sequence[str]  # records, with the reason

    @property
    def counts(self) -> Counter[State]:
        return Counter(state.state for state in self.states)

    @property
    def stages(self) -> dict[str, Counter[State]]:
        """Job counts by stage, in the order of running."""
        by_stage: dict[str, Counter[State]] = {}
        for state in self.states:
            by_stage.setdefault(state.job.rule, Counter())[state.state] += 1
        return by_stage

    def of(self, *wanted: State) -> list[JobState]:
        """Jobs in these states, ordered by state, then by their last change, newest first."""

        def place(state: JobState) -> tuple[int, float]:
            updated = state.last.updated if state.last else 0.0
            return wanted.index(state.state), -updated

        return sorted((state for state in self.states if state.state in wanted), key=place)

    def words(self, state: JobState) -> str:
        """Return the last line of the log of a job; of a failed one, the line above the path of the log."""
        if not state.attempts:
            return ""
        log = log_of(Path(state.attempts[-1].file), self.results / "attempts")
        if log is None:
            return ""
        try:
            with open(log, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - TAIL))
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        for line in reversed(text.splitlines()):
            words = plain(line)
            if words and not words.startswith(DETAILS):
                return words
        return ""


class Folder:
    """A results folder that is looked at again and again."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.records = Records(results / "attempts")
        self._recorded = (0.0, 0.0)  # time stamps of the configuration and the jobs
        self._read_plan()

    def look(self) -> Snapshot:
        self._read_plan()
        records = self.records.read()
        states = job_states(self.results, self.jobs, records)
        attempts: list[JobAttempt] = []
        device_s = 0.0
        for of_job in records.values():
            for recorded in of_job:
                attempts.append(recorded.attempt)
                device_s += recorded.attempt.cost.device_s
        device = _device(self.grid.config, attempts)
        unfinished = [state.job for state in states if state.state != "finished"]
        return Snapshot(
            results=self.results,
            title=plain(self.grid.config.title),
            now=time.time(),
            states=states,
            device_hours=device_s / 3600,
            to_go=hours_left(self.grid, unfinished, self.results, device),
            device=device,
            is_locked=is_locked(self.results.absolute().parent),
            unreadable=[plain(reason) for reason in self.records.unreadable],
        )

    def _read_plan(self) -> None:
        """Read the configuration and the jobs, if a run has begun since."""
        file = self.results / "config.yaml"
        jobs = self.results / JOBS
        jobs_changed = jobs.stat().st_mtime if jobs.exists() else 0.0
        recorded = (file.stat().st_mtime, jobs_changed)
        if recorded != self._recorded:
            self.grid = Grid(read_record(file))
            self.jobs = read_jobs(self.results)
            self._recorded = recorded


def _device(config: Config, attempts: Sequence[JobAttempt]) -> Device:
    if any(attempt.cost.device not in ("cpu", "unknown") for attempt in attempts):
        return CARD
    elsewhere = any(attempt.process.slurm_job for attempt in attempts)
    return device_here(config.engine.name, elsewhere=elsewhere)
