"""What is left of a grid: its GPU-hours, and when it will be done.

Jobs that hold a GPU are estimated as `snakemake -n` does (`g2d.forecast.hours`), all others as the progress line does
(`g2d.forecast.rates.Pace`). A training that has begun counts for the steps that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from g2d.experiment.plan import Plan, model_of
from g2d.forecast.hours import GpuJob, Line, continued_step, estimate, gpu_job, hours_of, mean_rates
from g2d.forecast.jobs import GridJob
from g2d.forecast.rates import Pace, Rates
from g2d.status.states import JobState


@dataclass(frozen=True, slots=True)
class Eta:
    """What is left."""

    gpu_hours: tuple[Line, ...]  # by stage
    seconds: float | None  # until all is done, with as many jobs at once as now; None where nothing runs
    at_once: int  # jobs that run now
    not_counted: tuple[str, ...]  # stages to come that `seconds` does not include, as they were not measured


def eta(plan: Plan, states: Sequence[JobState], now: float) -> Eta:
    """What is left of a grid, given all its jobs and the seconds since the epoch."""
    known = _Known(plan, states)
    on_gpu: list[GpuJob] = []
    seconds, not_counted = 0.0, dict[str, None]()
    for state in states:
        if state.state == "finished":
            continue
        if known.is_on_gpu(state.job):
            job = known.work(state.job)
            hours = hours_of(job, known.means)
            expected = None if hours is None else 3600 * hours
            share = known.share_left(state, expected, now)
            on_gpu.append(replace(job, units=job.units * share))
            if expected is None:
                not_counted[job.stage] = None
        else:
            expected = known.pace.seconds(*known.paced(state.job))
            share = known.share_left(state, expected, now)
        seconds += (expected or 0.0) * share
    at_once = sum(state.state == "running" for state in states)
    lines = tuple(estimate(on_gpu, known.rates))
    return Eta(lines, seconds / at_once if at_once else None, at_once, tuple(not_counted))


class _Known:
    """How much every job has to do, and how fast those were that have finished here."""

    def __init__(self, plan: Plan, states: Sequence[JobState]) -> None:
        self.plan = plan
        self._work: dict[tuple[object, ...], GpuJob] = {}
        units: dict[str, list[float]] = {}
        for state in states:
            if state.job.holds_device:
                units.setdefault(state.job.stage, []).append(self.work(state.job).units)
        self._average = {stage: mean(found) for stage, found in units.items()}
        self.pace = Pace()
        self.rates: Rates = {}
        for state in states:
            last = state.last
            if state.state != "finished" or last is None or last.status != "ok":
                continue
            if not self.is_on_gpu(state.job):
                rule, work, model = self.paced(state.job)
                self.pace.add(rule, last.bill.wall_s, work, model)
            elif last.cost.device != "cpu":
                job = self.work(state.job)
                rate = last.bill.device_s / 3600 / job.units
                self.rates.setdefault(job.rated_as, []).append(rate)
        self.means = mean_rates(self.rates)

    def is_on_gpu(self, job: GridJob) -> bool:
        """Whether it holds a GPU where there is one."""
        return job.holds_device and not self.plan.is_embedded(model_of(job.wildcards))

    def work(self, job: GridJob) -> GpuJob:
        """How much a job that trains or generates has to do, whatever its seed."""
        w = job.wildcards
        same = (job.rule, model_of(w), *map(w.get, ("variant", "regime", "g", "k", "shards", "benchmark")))
        if same not in self._work:
            self._work[same] = gpu_job(self.plan, job.rule, w)
        return self._work[same]

    def paced(self, job: GridJob) -> tuple[str, float, str]:
        """Rule, work relative to an average job of its rule, and model."""
        if not job.holds_device:
            return job.rule, 1.0, ""
        work = self.work(job)
        return job.stage, work.units / self._average[job.stage], work.model

    def share_left(self, state: JobState, expected: float | None, now: float) -> float:
        """What part of a job is left: by its steps where they are known, else by the seconds that it was expected to
        take."""
        if state.position is not None:
            step, steps = state.position
            if state.job.rule.endswith("_auto"):  # its steps are those of a segment
                steps = int(state.job.wildcards.k)
            before = continued_step(self.plan, state.job.rule, state.job.wildcards)
            if steps > before:
                return min(1.0, max(0.0, (steps - step) / (steps - before)))
        if state.state != "running" or state.last is None or not expected:
            return 1.0
        return max(0.0, 1 - max(0.0, now - state.last.started) / expected)
