"""Remaining GPU-hours or CPU hours of a grid, and when it will be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.forecast.devices import CARD, Device, device_here
from g2d.forecast.hours import GpuJob, Line, estimate, gpu_job, hours_of, mean_rates
from g2d.forecast.rates import Pace, Rates
from g2d.graph.job import Job
from g2d.jobs.cost import merge_costs
from g2d.status.states import JobState


@dataclass(frozen=True, slots=True)
class Eta:
    device_hours: tuple[Line, ...]  # a line per stage
    device: Device
    seconds: float | None  # until all is done, with as many parallel jobs as now
    at_once: int  # running jobs
    not_counted: tuple[str, ...]  # stages without measurements


def eta(config: Config, states: Sequence[JobState], now: float) -> Eta:
    measured = _Measured(config, states)
    on_device: list[GpuJob] = []
    seconds, not_counted = 0.0, dict[str, None]()
    for state in states:
        if state.state == "finished":
            continue
        if measured.is_on_device(state.job):
            job = measured.work(state.job)
            hours = hours_of(job, measured.means)
            expected = None if hours is None else 3600 * hours
            share = measured.share_left(state, expected, now)
            on_device.append(replace(job, units=job.units * share))
            if expected is None:
                not_counted[job.stage] = None
        else:
            expected = measured.pace.seconds(*measured.paced(state.job))
            share = measured.share_left(state, expected, now)
        seconds += (expected or 0.0) * share
    at_once = sum(state.state == "running" for state in states)
    lines = tuple(estimate(on_device, measured.rates))
    return Eta(lines, measured.device, seconds / at_once if at_once else None, at_once, tuple(not_counted))


def _device(config: Config, states: Sequence[JobState]) -> Device:
    attempts = [recorded.attempt for state in states for recorded in state.attempts]
    elsewhere = any(one.process is not None and one.process.slurm_job for one in attempts)
    if any(one.cost.device not in ("cpu", "unknown") for one in attempts):
        return CARD
    return device_here(config.engine.name, elsewhere=elsewhere)


class _Measured:
    def __init__(self, config: Config, states: Sequence[JobState]) -> None:
        self.config = config
        self.device = _device(config, states)
        self._work: dict[tuple[object, ...], GpuJob] = {}
        units: dict[str, list[float]] = {}
        for state in states:
            if state.job.holds_device:
                units.setdefault(state.job.stage, []).append(self.work(state.job).units)
        self._average = {stage: mean(values) for stage, values in units.items()}
        self.pace = Pace()
        self.rates: Rates = {}
        for state in states:
            last = state.last
            if state.state != "finished" or last is None or last.status != "ok":
                continue
            bill = merge_costs(last.carried, last.cost)
            if not self.is_on_device(state.job):
                rule, work, model = self.paced(state.job)
                self.pace.add(rule, bill.wall_s, work, model)
            elif hours := self.device.hours(bill):
                job = self.work(state.job)
                self.rates.setdefault(job.rated_as, []).append(hours / job.units)
        self.means = mean_rates(self.rates)

    def is_on_device(self, job: Job) -> bool:
        return job.holds_device and not grid.is_embedded(self.config, job.model)

    def work(self, job: Job) -> GpuJob:
        w = job.wildcards
        same = (job.rule, job.model, *map(w.get, ("variant", "regime", "g", "k", "shards", "benchmark")))
        if same not in self._work:
            self._work[same] = gpu_job(self.config, job, self.device)
        return self._work[same]

    def paced(self, job: Job) -> tuple[str, float, str]:
        if not job.holds_device:
            return job.rule, 1.0, ""
        work = self.work(job)
        return job.stage, work.units / self._average[job.stage], work.model

    def share_left(self, state: JobState, expected: float | None, now: float) -> float:
        if state.position is not None:
            step, steps = state.position
            if state.job.rule.endswith("_auto"):  # its recorded steps are of a segment
                steps = int(state.job.wildcards.k)
            before = state.job.continues or 0
            if steps > before:
                return min(1.0, max(0.0, (steps - step) / (steps - before)))
        if state.state != "running" or state.last is None or not expected:
            return 1.0
        return max(0.0, 1 - max(0.0, now - state.last.started) / expected)
