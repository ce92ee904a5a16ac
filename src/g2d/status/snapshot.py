"""The state of a grid at one moment."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from g2d.checks.load import read_record
from g2d.config.sections import Config
from g2d.forecast.devices import CARD, Device, device_here
from g2d.forecast.hours import Line, hours_left
from g2d.grid.grid import Grid
from g2d.jobs.attempts import JobAttempt, log_of
from g2d.jobs.recover import is_locked
from g2d.jobs.snakemake_jobs import JOBS, read_jobs
from g2d.plain import plain
from g2d.status.states import JobState, Records, State, job_states

TAIL = 8192  # bytes


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
        """Return the last line of the log of a job."""
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
            if words:
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
        for of_job in records.values():
            attempts += [recorded.attempt for recorded in of_job]
        device = _device(self.grid.config, attempts)
        unfinished = [state.job for state in states if state.state != "finished"]
        return Snapshot(
            results=self.results,
            title=plain(self.grid.config.title),
            now=time.time(),
            states=states,
            device_hours=sum(attempt.cost.device_s for attempt in attempts) / 3600,
            to_go=hours_left(self.grid, unfinished, self.results, device),
            device=device,
            is_locked=is_locked(self.results.resolve().parent),
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
