"""What a grid has cost and what is to come: GPU-hours and time, from the attempts that were made here.

Jobs that hold a GPU are estimated as `snakemake -n` does (`g2d.forecast.hours`), with the rates of the attempts
that have finished here; all others as the line of a run does (`g2d.forecast.pace`). A training that is on its way
counts for the steps that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import mean

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.plan import Plan
from g2d.experiment.wildcards import model_of, variant_of
from g2d.forecast.gpu_jobs import work
from g2d.forecast.hours import GpuJob, Line, estimate, mean_rates, rate_of
from g2d.forecast.jobs import GridJob
from g2d.forecast.pace import Pace
from g2d.jobs.attempts import Attempt, lost_device_s
from g2d.status.states import JobState


@dataclass(frozen=True, slots=True)
class Hours:
    """Device-hours of all attempts, also of those that failed or whose jobs are no longer asked for."""

    gpu: float
    cpu: float  # a machine without a GPU counts as one device
    unknown: float  # of attempts that run or were killed, which had not said on what
    in_vain: float  # those of all three that no result came of


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is to come."""

    gpu_hours: tuple[Line, ...]  # by stage; hours are None where nobody has measured it
    seconds: float | None  # until all is done, with as many jobs at once as now; None where nothing runs
    at_once: int  # jobs that run now
    not_counted: tuple[str, ...]  # stages to come that `seconds` knows nothing of


def hours(attempts: Iterable[Attempt]) -> Hours:
    """What all attempts have cost."""
    attempts = list(attempts)
    by_device = {"gpu": 0.0, "cpu": 0.0, "unknown": 0.0}  # the last, of attempts without a last word
    for attempt in attempts:
        device = attempt.cost.device
        by_device[device if device in by_device else "gpu"] += attempt.cost.device_s / 3600
    over = [attempt for attempt in attempts if attempt.status != "running"]
    in_vain = sum(lost_device_s(over).values()) / 3600
    return Hours(by_device["gpu"], by_device["cpu"], by_device["unknown"], in_vain)


def ahead(config: Config, plan: Plan, states: Sequence[JobState], now: float) -> Ahead:
    """What is to come.

    Args:
        states: of all jobs of the grid.
        now: seconds since the epoch.
    """
    known = _Known(config, plan, states)
    on_gpu: list[GpuJob] = []
    seconds, not_counted = 0.0, dict[str, None]()
    for state in states:
        if state.state == "finished":
            continue
        if not known.is_on_gpu(state.job):
            seconds += known.seconds_left(state, now)
            continue
        job = known.left(state, now)
        on_gpu.append(job)
        if (hours_left := known.hours(job)) is None:
            not_counted[job.stage] = None
        else:
            seconds += 3600 * hours_left
    at_once = sum(state.state == "running" for state in states)
    lines = tuple(estimate(on_gpu, known.rates))
    return Ahead(lines, seconds / at_once if at_once else None, at_once, tuple(not_counted))


class _Known:
    """How much every job has to do, and how fast those were that have finished here."""

    def __init__(self, config: Config, plan: Plan, states: Sequence[JobState]) -> None:
        self.plan = plan
        self._chain = lru_cache(maxsize=None)(partial(grid.chain_predecessor, config))
        self._work: dict[tuple[object, ...], GpuJob] = {}
        units: dict[str, list[float]] = {}
        for state in states:
            if state.job.holds_device:
                units.setdefault(state.job.stage, []).append(self.work(state.job).units)
        self._average = {stage: mean(found) for stage, found in units.items()}
        self.pace = Pace()
        self.rates: dict[tuple[str, str], list[float]] = {}  # GPU-hours per unit, as `estimate` takes them
        for state in states:
            last = state.last
            if state.state != "finished" or last is None or last.status != "ok":
                continue
            if not self.is_on_gpu(state.job):
                rule, work, model = self._paced(state.job)
                self.pace.add(rule, last.bill.wall_s, work, model)
            elif last.cost.device != "cpu":
                job = self.work(state.job)
                rate = last.bill.device_s / 3600 / job.units
                self.rates.setdefault((job.rate_of or job.stage, job.model), []).append(rate)
        self._means = mean_rates(self.rates)

    def is_on_gpu(self, job: GridJob) -> bool:
        """Whether it is one of those that the estimate is about: they hold a GPU where there is one."""
        return job.holds_device and not self.plan.is_embedded(model_of(job.wildcards))

    def work(self, job: GridJob) -> GpuJob:
        """How much a job that trains or generates has to do."""
        w = job.wildcards
        given = vars(w).get
        same = (job.rule, model_of(w), *map(given, ("variant", "regime", "g", "k", "shards", "benchmark")))
        if same not in self._work:
            self._work[same] = work(self.plan, job.rule, w, self._before(job))
        return self._work[same]

    def _before(self, job: GridJob) -> int:
        """K of the checkpoint that a training continues."""
        if job.rule not in ("train_grpo", "train_semi_online_dpo"):
            return 0
        w = job.wildcards
        variant = variant_of(w) if job.rule == "train_grpo" else w.regime
        return self._chain(w.model, int(w.g), int(w.k), variant) or 0

    def _paced(self, job: GridJob) -> tuple[str, float, str]:
        """Rule, work beside an average job of its rule, and model."""
        if not job.holds_device:
            return job.rule, 1.0, ""
        work = self.work(job)
        return job.stage, work.units / self._average[job.stage], work.model

    def hours(self, job: GpuJob) -> float | None:
        """GPU-hours; None where nobody has measured the stage."""
        rate = rate_of(job, self._means)
        return None if rate is None else rate * job.units

    def left(self, state: JobState, now: float) -> GpuJob:
        """What is left of a job on a GPU."""
        job = self.work(state.job)
        share = self._share_left(state)
        if share is None:
            took, expected = _elapsed(state, now) / 3600, self.hours(job)
            share = max(0.0, 1 - took / expected) if expected else 1.0
        return replace(job, units=job.units * share)

    def seconds_left(self, state: JobState, now: float) -> float:
        """What is left of any other job."""
        rule, work, model = self._paced(state.job)
        expected = self.pace.seconds(rule, work, model)
        share = self._share_left(state)
        return max(0.0, expected - _elapsed(state, now)) if share is None else expected * share

    def _share_left(self, state: JobState) -> float | None:
        """What part of a training is left, by its steps; None where they are not known."""
        if state.position is None:
            return None
        step, steps = state.position
        if state.job.rule.endswith("_auto"):  # its steps are those of a segment
            steps = int(state.job.wildcards.k)
        before = self._before(state.job)
        return min(1.0, max(0.0, (steps - step) / (steps - before))) if steps > before else None


def _elapsed(state: JobState, now: float) -> float:
    """Seconds that a job has been running."""
    return max(0.0, now - state.last.started) if state.state == "running" and state.last else 0.0
