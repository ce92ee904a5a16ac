"""GPU-hours or CPU hours of jobs, for `snakemake -n` and `g2d status`.

A rate is the mean over finished jobs of the stage and model, or a guess. It includes the start of a job, so a training
of few steps is no measurement for a longer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from g2d.forecast.devices import CARD, Device
from g2d.forecast.guess import SOURCE, guess
from g2d.grid.grid import Grid
from g2d.grid.runs import OnlineRun, Policy, harvest_of
from g2d.grid.versions import AUTO_STAGE, EVALUATIONS, GPU_STAGES, OFFLINE_STAGES, ONLINE_STAGES
from g2d.jobs.cost import Cost, read_cost
from g2d.jobs.snakemake_jobs import PlannedJob
from g2d.policies.record import read_policy
from g2d.regimes.catalogue import ENTRIES

ENOUGH_STEPS = 20  # a training's start is then a small part
SIMILAR = 2  # ratio of units


@dataclass(frozen=True)
class Measured:
    """Cost of a finished job."""

    cost: Cost
    units: float = 1.0
    steps: int | None = None  # trained steps, if the training is online

    def holds_for(self, job: GpuJob) -> bool:
        return self.steps is None or self.steps >= ENOUGH_STEPS or job.units <= SIMILAR * self.units


Finished = Mapping[tuple[str, str], Sequence[Measured]]  # finished jobs by stage and model


@dataclass(frozen=True)
class GpuJob:
    """A job on a device; its hours are proportional to `units`, completions of an online training or benchmarks."""

    stage: str
    model: str
    units: float = 1.0
    at_most: bool = False
    guess: float | None = None  # hours per unit, if not measured


@dataclass(frozen=True)
class Line:
    """`hours` is None if the stage was not measured."""

    stage: str
    jobs: int
    hours: float | None
    source: str


def gpu_job(grid: Grid, job: PlannedJob, device: Device = CARD, results: str | Path = "results") -> GpuJob:
    policy = None
    if job.rule in (*ONLINE_STAGES, *OFFLINE_STAGES):
        policy = grid.at(job.folder)
    benchmarks = to_answer(job.costs, results) if job.rule in EVALUATIONS else []
    return work_of(grid, job.rule, job.model, policy, benchmarks, device)


def work_of(
    grid: Grid,
    stage: str,
    model: str,
    policy: Policy | None = None,
    benchmarks: Sequence[str] = (),
    device: Device = CARD,
) -> GpuJob:
    """Return the work of a job that trains a policy, answers benchmarks, or samples once."""
    units = 1.0
    at_most = False
    if policy is not None and isinstance(policy.run, OnlineRun):
        settings = policy.run.settings
        before = policy.reads.continues
        steps = policy.k
        if before:
            steps -= before.k
        # An upper bound: auto-stop and iterations need fewer.
        units = steps * settings.completions_per_step(policy.group_size)
        at_most = getattr(settings, "iterations", 1) > 1
    elif stage in EVALUATIONS:
        units = len(benchmarks)
    work = GpuJob(stage, model, units, at_most)
    if grid.is_embedded(model) or not units:
        return work
    hours = guess(grid, stage, model, units, policy, benchmarks, device)
    return replace(work, guess=hours / units)


def to_answer(costs: Sequence[str], results: str | Path) -> list[str]:
    """Return the benchmarks that an evaluation answers: without costs, or all if none is missing and it runs again."""
    missing = []
    for cost in costs:
        if not Path(results, Path(cost).relative_to("results")).exists():
            missing.append(cost)
    return [Path(cost).name.removesuffix(".cost.json") for cost in missing or costs]


def holds_device(grid: Grid, job: PlannedJob) -> bool:
    """Return whether a job trains or samples; other jobs take seconds."""
    if job.rule == "harvest_rollouts":
        return grid.judged_again(harvest_of(job.wildcards)) is None
    return job.rule in GPU_STAGES


def estimate(jobs: Iterable[GpuJob], finished: Finished, device: Device = CARD) -> list[Line]:
    """Return the hours by stage and source of the rate."""
    hours_by_line: dict[tuple[str, str], list[float | None]] = {}
    for job in jobs:
        hours = hours_of(job, finished, device)
        rates = _rates(job, finished, device)
        if hours is None:
            source = "not measured yet"
        elif rates:
            source = f"measured here ({job.model}, n={len(rates)})"
        else:
            source = SOURCE
        if hours is not None and (job.at_most or job.stage == AUTO_STAGE):
            source = f"at most; {source}"
        hours_by_line.setdefault((job.stage, source), []).append(hours)
    lines = []
    for (stage, source), all_hours in hours_by_line.items():
        known = [hours for hours in all_hours if hours is not None]
        total = sum(known) if len(known) == len(all_hours) else None
        lines.append(Line(stage, len(all_hours), total, source))
    return lines


def hours_left(
    grid: Grid, jobs: Iterable[PlannedJob], results: str | Path, device: Device, finished: Finished | None = None
) -> list[Line]:
    """Return the hours of jobs on a device; the embedded model's take seconds and are left out."""
    on_device = []
    for job in jobs:
        if holds_device(grid, job) and not grid.is_embedded(job.model):
            on_device.append(job)
    if not on_device:
        return []
    if finished is None:
        finished = finished_jobs(results, grid.config.models)
    return estimate([gpu_job(grid, job, device, results) for job in on_device], finished, device)


def finished_jobs(results: str | Path, models: Iterable[str]) -> Finished:
    """Return all finished jobs whose cost file can be read."""
    finished: dict[tuple[str, str], list[Measured]] = {}
    for model in models:
        for path in sorted(Path(results, model).rglob("*cost.json")):
            try:
                cost = read_cost(path).own
                measured = _training(cost, path.parent) if cost.stage in ONLINE_STAGES else Measured(cost)
            except (OSError, ValueError, KeyError):
                continue
            finished.setdefault((cost.stage, model), []).append(measured)
    return finished


def _training(cost: Cost, folder: Path) -> Measured:
    policy = read_policy(folder / "policy.json")
    last = policy.statistics.get("steps_trained", policy.k)  # an auto-stop may train beyond its K
    steps = int(last - (policy.continued_from or 0))
    return Measured(cost, steps * _completions_per_step(policy.settings), steps)


def _completions_per_step(settings: Mapping[str, Any]) -> int:
    for regime in ENTRIES:
        entry = settings.get(regime.name)
        if entry is not None:
            return int(entry["prompts_per_update"] * entry["responses"])
    warmup = settings["warmup"]  # prompts_per_step is recorded as accumulation steps
    return int(warmup["per_device_batch_size"] * warmup["gradient_accumulation_steps"])


def _rates(job: GpuJob, finished: Finished, device: Device) -> list[float]:
    """Return the hours per unit of finished jobs that ran on such a device."""
    rates = []
    for measured in finished.get((job.stage, job.model), ()):
        hours = device.hours(measured.cost)
        if hours and measured.units and measured.holds_for(job):
            rates.append(hours / measured.units)
    return rates


def hours_of(job: GpuJob, finished: Finished, device: Device = CARD) -> float | None:
    rates = _rates(job, finished, device)
    rate = mean(rates) if rates else job.guess
    return None if rate is None else rate * job.units


def report(lines: Sequence[Line], device: Device = CARD) -> str:
    if not lines:
        return ""
    width = max(len("job"), *(len(line.stage) for line in lines))
    rows = [f"{'job':<{width}}  count  {device.unit}  rate from"]
    jobs = 0
    hours = 0.0
    is_known = True
    title = f"Estimated {device.unit}"
    for line in lines:
        jobs += line.jobs
        shown = "?"
        if line.hours is None:
            is_known = False
        else:
            hours += line.hours
            shown = f"{line.hours:.1f}"
        if SOURCE in line.source:
            title = f"Estimated {device.unit} ({device.caveat})"
        rows.append(f"{line.stage:<{width}}  {line.jobs:>5}  {shown:>9}  {line.source}")
    total = f"{'total':<{width}}  {jobs:>5}  {hours:>9.1f}"
    if not is_known:
        total += ", and what is marked ?"
    rows.append(total)
    return f"{title}:\n" + "\n".join(rows)
