"""The state of a grid at one moment."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from g2d.experiment.config import Config, read
from g2d.experiment.race import next_look_words, taken
from g2d.graph.build import grid_jobs
from g2d.jobs.attempts import Attempt, log_of
from g2d.jobs.recover import is_locked
from g2d.plain import plain
from g2d.status.eta import Eta, eta
from g2d.status.states import STATES, TROUBLE, JobState, Records, State, job_states

TAIL = 8192  # bytes


@dataclass(frozen=True, slots=True)
class Spent:
    """Device-hours of all attempts, also failed ones and of jobs that have left the grid."""

    gpu: float
    cpu: float  # a machine without a GPU counts as one device
    unknown: float  # attempts without a recorded device


def spent(attempts: Sequence[Attempt]) -> Spent:
    by_device = {"gpu": 0.0, "cpu": 0.0, "unknown": 0.0}
    for attempt in attempts:
        device = attempt.cost.device
        by_device[device if device in by_device else "gpu"] += attempt.cost.device_s / 3600
    return Spent(**by_device)


@dataclass(frozen=True)
class Snapshot:
    results: Path
    title: str
    now: float  # seconds since the epoch
    states: Sequence[JobState]
    spent: Spent
    eta: Eta
    is_locked: bool  # a running or killed Snakemake has the lock
    looks: Sequence[str]  # lines on the next interim analysis
    unreadable: Sequence[str]  # records, with the reason

    @property
    def counts(self) -> Counter[State]:
        return Counter(state.state for state in self.states)

    @property
    def stages(self) -> dict[str, Counter[State]]:
        """Job counts by stage, in the order of running; shards count as jobs."""
        by_stage: dict[str, Counter[State]] = {}
        for state in self.states:
            by_stage.setdefault(state.job.stage, Counter())[state.state] += 1
        return by_stage

    def of(self, *wanted: State) -> list[JobState]:
        """Jobs in these states, ordered by state, then by their last change, newest first."""
        chosen = [state for state in self.states if state.state in wanted]
        return sorted(chosen, key=lambda state: (wanted.index(state.state), -(state.last.updated if state.last else 0)))

    def words(self, state: JobState) -> str:
        log = log_of(Path(state.attempts[-1].file), self.results / "attempts") if state.attempts else None
        if log is None:
            return ""
        try:
            with open(log, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - TAIL))
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        return next((line for line in map(plain, reversed(text.splitlines())) if line), "")

    def as_json(self) -> dict[str, Any]:
        to_go = self.eta
        kind = "gpu" if to_go.device.is_card else "cpu"
        return {
            "results": str(self.results),
            "title": self.title,
            "time": _iso(self.now),
            "locked": self.is_locked,
            "jobs": _numbers(self.counts),
            "stages": [{"stage": stage} | _numbers(counts) for stage, counts in self.stages.items()],
            "running": [self._job(state) for state in self.of("running")],
            "trouble": [self._job(state) | {"last_line": self.words(state)} for state in self.of(*TROUBLE)],
            "spent": {f"{name}_hours": value for name, value in asdict(self.spent).items()},
            "to_go": {
                **{"gpu_hours": 0.0, "cpu_hours": 0.0, "gpu_hours_by_stage": [], "cpu_hours_by_stage": []},
                f"{kind}_hours": sum(line.hours or 0.0 for line in to_go.device_hours),
                f"{kind}_hours_by_stage": [asdict(line) for line in to_go.device_hours],
                "seconds": to_go.seconds,
                "done_at": None if to_go.seconds is None else _iso(self.now + to_go.seconds),
                "jobs_at_once": to_go.at_once,
                "not_counted": list(to_go.not_counted),
            },
            "looks": list(self.looks),
            "unreadable": list(self.unreadable),
        }

    def _job(self, state: JobState) -> dict[str, Any]:
        last = state.last
        assert last is not None  # only finished and waiting jobs have no attempt
        step, steps = state.position or (None, None)
        return {
            "stage": state.job.stage,
            "job": plain(state.job.name),
            "state": state.state,
            "attempt": len(state.attempts),
            "started": _iso(last.started),
            "last_sign_of_life": _iso(last.updated),
            "step": step,
            "steps": steps,
            "host": plain(str(last.host)),
            "pid": last.process.pid if last.process else None,
            "slurm_job": last.process.slurm_job if last.process else None,
        }


class Grid:
    def __init__(self, results: Path) -> None:
        self.results = results
        self.records = Records(results / "attempts")
        self._recorded: list[Any] = []
        self._read_config()

    def look(self) -> Snapshot:
        self._read_config()
        records = self.records.read()
        states = job_states(self.results, self.jobs, records)
        now = time.time()
        return Snapshot(
            results=self.results,
            title=plain(self.config.title),
            now=now,
            states=states,
            spent=spent([recorded.attempt for attempts in records.values() for recorded in attempts]),
            eta=eta(self.config, states, now),
            is_locked=is_locked(self.results.resolve().parent),
            looks=[plain(line) for line in self._next_look],
            unreadable=[plain(reason) for reason in self.records.unreadable],
        )

    def _read_config(self) -> None:
        file = self.results / "config.yaml"
        recorded = [file.stat().st_mtime, *sorted(self.results.glob("looks/**/look*.json"))]
        if recorded != self._recorded:
            self._recorded = recorded
            self.config: Config = read(file)
            looks = self.config.looks
            self._next_look = next_look_words(self.config, taken(looks, self.results)) if looks else []
            self.jobs = grid_jobs(self.config)


def _numbers(counts: Counter[State]) -> dict[str, int]:
    return {"total": counts.total()} | {state: counts[state] for state in STATES}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
