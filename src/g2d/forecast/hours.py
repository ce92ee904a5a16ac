"""GPU-hours of a grid before it runs: what `snakemake -n` adds to its table of jobs.

A rate comes from the jobs of the same stage and model that have already run on a GPU here, or, where there are none,
from `g2d.forecast.guess`. With `warmup.iterations` above 1 a step generates only a part of the completions it is
trained on, and the hours are at most those of the estimate.

`workflow/rules/guards.smk` collects the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from g2d.forecast.guess import CAVEAT, SOURCE
from g2d.jobs.cost import read_cost
from g2d.policies.policy import read_policy

AUTO_STAGES = ("train_grpo_auto", "train_semi_online_dpo_auto")  # may stop long before their last step


@dataclass(frozen=True)
class GpuJob:
    """One job that holds a GPU. `units` is what its hours grow with: completions of an online training, else 1."""

    stage: str
    model: str
    units: float = 1.0
    rate_of: str | None = None  # the stage whose rate counts, where it is another: a probe is a part of a harvest
    at_most: bool = False  # its hours may be fewer
    guess: float | None = None  # GPU-hours per unit, where nobody has measured them


@dataclass(frozen=True)
class Line:
    """One line of the estimate; `hours` is None where nobody has measured the stage."""

    stage: str
    jobs: int
    hours: float | None
    source: str


def estimate(jobs: Iterable[GpuJob], measured: Mapping[tuple[str, str], Sequence[float]]) -> list[Line]:
    """GPU-hours by stage and source of the rate, in the order of the jobs.

    Args:
        jobs: the jobs to run.
        measured: GPU-hours per unit of every finished job, by (stage, model).
    """
    found: dict[tuple[str, str], list[float | None]] = {}
    means = mean_rates(measured)
    for job in jobs:
        stage = job.rate_of or job.stage
        rates, rate = measured.get((stage, job.model)), rate_of(job, means)
        source = f"measured here ({job.model}, n={len(rates)})" if rates else SOURCE
        if rate is None:
            source = "not measured yet"
        elif job.at_most or job.stage in AUTO_STAGES:
            source = f"at most; {source}"
        found.setdefault((job.stage, source), []).append(None if rate is None else rate * job.units)
    return [
        Line(stage, len(hours), None if None in hours else sum(h for h in hours if h is not None), source)
        for (stage, source), hours in found.items()
    ]


def mean_rates(measured: Mapping[tuple[str, str], Sequence[float]]) -> dict[tuple[str, str], float]:
    """The mean of the rates of every (stage, model) that has been measured."""
    return {at: mean(rates) for at, rates in measured.items() if rates}


def rate_of(job: GpuJob, means: Mapping[tuple[str, str], float]) -> float | None:
    """GPU-hours per unit of a job: measured here, else guessed; None where neither is known."""
    return means.get((job.rate_of or job.stage, job.model), job.guess)


def measured_rates(results: str | Path, models: Iterable[str]) -> dict[tuple[str, str], list[float]]:
    """GPU-hours per unit of everything that is finished, by (stage, model), from the bills below the results folder.

    What ran without a GPU does not count. A bill that cannot be read is left out: the job that needs it says so.
    """
    rates: dict[tuple[str, str], list[float]] = {}
    for model in models:
        for path in sorted(Path(results, model).rglob("*cost.json")):
            try:
                bill = read_cost(path)
                stage, units = bill.own.stage, 1
                if stage in ("train_grpo", "train_semi_online_dpo", *AUTO_STAGES):
                    units = _completions(path.parent)
            except (OSError, ValueError, KeyError):
                continue
            shards = [record for record in bill.ancestry if record.stage == stage and ".shards/" in record.job]
            if seconds := sum(record.device_s for record in (bill.own, *shards) if record.device != "cpu"):
                rates.setdefault((stage, model), []).append(seconds / 3600 / units)
    return rates


def _completions(folder: Path) -> int:
    """Completions that a warm-up was trained on after the checkpoint that it continued."""
    policy = read_policy(folder / "policy.json")
    last = policy.settings.get("steps_trained", policy.k)  # what stops by itself trains beyond its K
    if (entry := policy.settings.get("semi_online_dpo")) is not None:
        return int(last - (policy.continued_from or 0)) * int(entry["prompts_per_update"] * entry["responses"])
    warmup = policy.settings["warmup"]  # a step that was asked for in prompts stands there in completions
    per_step = warmup["per_device_batch_size"] * warmup["gradient_accumulation_steps"]
    return int(last - (policy.continued_from or 0)) * per_step


def report(lines: Sequence[Line]) -> str:
    """The estimate as a table, with its total; empty without lines."""
    if not lines:
        return ""
    width = max(len("job"), *(len(line.stage) for line in lines))
    rows = [f"{'job':<{width}}  count  GPU-hours  rate from"]
    for line in lines:
        hours = "?" if line.hours is None else f"{line.hours:.1f}"
        rows.append(f"{line.stage:<{width}}  {line.jobs:>5}  {hours:>9}  {line.source}")
    total, jobs = sum(line.hours or 0.0 for line in lines), sum(line.jobs for line in lines)
    more = ", and what is marked ?" if any(line.hours is None for line in lines) else ""
    rows.append(f"{'total':<{width}}  {jobs:>5}  {total:>9.1f}{more}")
    caveat = f" ({CAVEAT})" if any(SOURCE in line.source for line in lines) else ""
    return f"Estimated GPU-hours{caveat}:\n" + "\n".join(rows)
