"""What the seeds cost that a look asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from g2d.experiment.config import Config
from g2d.experiment.plan import Plan
from g2d.experiment.race import at_look, decided
from g2d.forecast.hours import gpu_job, hours_of, mean_rates
from g2d.forecast.jobs import GridJob, grid_jobs
from g2d.forecast.rates import measured_rates
from g2d.jobs.cost import Cost


def next_cost(config: Config, look: Mapping[str, Any], results: str | Path = "results") -> dict[str, Any]:
    """What the next look costs, at the rates of the jobs that have finished here; null where one is not known.

    Args:
        config: of the grid.
        look: what its file will say.

    Returns:
        Until the next look, device-`hours` and, where an hour has a price, `money` in a `currency`; and the same
        `_at_most`: where every policy that gets seeds then gets all there are.
    """
    plan, price = Plan(config), config.price_per_device_hour
    before = set(_device_jobs(decided(config, results), plan))
    most = {**look, "seeds": {**look["seeds"], **dict.fromkeys(look["next"], len(config.seeds))}}
    found: dict[str, Any] = {}
    for ending, then in (("", look), ("_at_most", most)):
        jobs = [job for at, job in _device_jobs(at_look(config, {"": then}), plan).items() if at not in before]
        found[f"hours{ending}"] = _worth(plan, jobs, results, _hours)
        if price:
            found[f"money{ending}"] = _worth(
                plan, jobs, results, lambda cost: _hours(cost) * (price.per_hour(cost.device) or math.nan)
            )
    return found | ({"currency": price.currency} if price else {})


def _device_jobs(config: Config, plan: Plan) -> dict[tuple[str, str], GridJob]:
    return {(job.rule, job.name): job for job in grid_jobs(config, plan) if job.holds_device}


def _hours(cost: Cost) -> float:
    return cost.device_s / 3600


def _worth(plan: Plan, jobs: Iterable[GridJob], results: str | Path, worth: Callable[[Cost], float]) -> float | None:
    """The sum over jobs at the rates measured here; None where one is not known."""
    means = mean_rates(measured_rates(results, plan.config.models, worth))
    spent = [hours_of(replace(gpu_job(plan, job.rule, job.wildcards), guess=None), means) for job in jobs]
    known = [one for one in spent if one is not None and math.isfinite(one)]
    return math.fsum(known) if len(known) == len(spent) else None
