"""The bill: what every stage behind a policy cost, and what the grid cost with the attempts that came to nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from g2d.experiment.keys import PolicyKey
from g2d.jobs.attempts import ENDED_BADLY, Attempt, kept, lost, lost_device_s
from g2d.jobs.cost import Cost
from g2d.tables.frames import floats, frame, integers, strings

COST_COLUMNS = {
    **strings("model", "policy"),
    **integers("K"),
    **dict.fromkeys(("group_size", "seed"), "Int64"),
    **strings("regime", "stage"),
    **integers("n_jobs"),
    **floats("wall_s", "cpu_s", "device_hours"),
    **integers("devices"),
    **strings("device"),
    **integers("tokens_generated"),
    **floats("peak_memory_gb", "peak_gpu_memory_gb"),
    **integers("n_lost_attempts"),
    **floats("device_hours_with_lost_attempts"),
}
ATTEMPT_COLUMNS = {
    **strings("stage"),
    **integers("n_jobs", "n_attempts", "n_failed", "n_stopped", "n_killed", "n_repeated"),
    **floats("device_hours_kept", "device_hours_all", "wall_s_all", "cpu_s_all", "start_up_s_all"),
    **integers("tokens_generated_all"),
    **floats("peak_memory_gb", "peak_gpu_memory_gb"),
}


def cost_table(bills: Mapping[PolicyKey, Sequence[Cost]], attempts: Sequence[Attempt] = ()) -> pd.DataFrame:
    """The bill: what each stage behind a policy cost.

    Args:
        bills: the jobs on each policy's bill, oldest first.
        attempts: all attempts at the jobs of the grid, from `read_attempts`.

    Returns:
        `COST_COLUMNS`, one row per policy (with its seed) and stage, stages in the order in which they ran. Times and
        tokens are sums over the stage's jobs, devices and the peaks (1e9 bytes; resident memory, and torch's on a GPU)
        the largest. Attempts that failed or were repeated are counted in n_lost_attempts; what they did that no later
        attempt went on from is in device_hours_with_lost_attempts and in no other column. Jobs that several policies
        share stand in each of their bills, so sum within a policy, not over the column.
    """
    without_result, in_vain = lost(attempts), lost_device_s(attempts)
    rows = []
    for key, bill in bills.items():
        for stage in dict.fromkeys(record.stage for record in bill):
            jobs = [record for record in bill if record.stage == stage]
            lost_s = math.fsum(in_vain.get(job.job, 0.0) for job in jobs)
            rows.append(
                {
                    "model": key.model,
                    "policy": key.label,
                    "K": key.shown_k,
                    "group_size": key.group_size or None,
                    "seed": key.seed,
                    "regime": key.regime,
                    "stage": stage,
                    "n_jobs": len(jobs),
                    "wall_s": math.fsum(job.wall_s for job in jobs),
                    "cpu_s": math.fsum(job.cpu_s for job in jobs),
                    "device_hours": _device_hours(jobs),
                    "devices": max(job.devices for job in jobs),
                    "device": ", ".join(dict.fromkeys(job.device for job in jobs)),
                    "tokens_generated": sum(job.tokens_generated for job in jobs),
                    **_peaks(jobs),
                    "n_lost_attempts": sum(len(without_result.get(job.job, [])) for job in jobs),
                    "device_hours_with_lost_attempts": _device_hours(jobs) + lost_s / 3600,
                }
            )
    return frame(rows, COST_COLUMNS)


def attempt_table(attempts: Sequence[Attempt]) -> pd.DataFrame:
    """What the grid really cost, beside what the results that were kept cost.

    Args:
        attempts: from `read_attempts`; every job counts once, whatever policies share it.

    Returns:
        `ATTEMPT_COLUMNS`, one row per stage, then one called "all". n_attempts counts those that are over, of which
        n_failed, n_stopped (by a signal) and n_killed (no last word) left nothing and n_repeated left something that
        was made again later. device_hours_kept is what every job's last successful attempt cost, with what it went on
        from; the columns that end in `_all` and the peaks are over all attempts. The start-up (interpreter, imports) is
        not in the wall time. A killed attempt counts as far as its last sign of life, at most half a minute before its
        end, or as far as another went on from it.
    """
    # Jobs of two stages may have one name.
    attempts = [replace(one, cost=replace(one.cost, job=f"{one.cost.stage} {one.cost.job}")) for one in attempts]
    stages = list(dict.fromkeys(attempt.cost.stage for attempt in sorted(attempts, key=lambda a: a.started)))
    rows = []
    for stage in [*stages, "all"] if stages else []:
        own = [attempt for attempt in attempts if stage in (attempt.cost.stage, "all")]
        costs = [attempt.cost for attempt in own]
        bills = [attempt.bill for attempt in kept(own).values()]
        statuses = Counter(attempt.status for attempt in own)
        rows.append(
            {
                "stage": stage,
                "n_jobs": len({cost.job for cost in costs}),
                "n_attempts": len(own),
                **{f"n_{status}": statuses[status] for status in ENDED_BADLY},
                "n_repeated": statuses["ok"] - len(bills),
                "device_hours_kept": _device_hours(bills),
                "device_hours_all": _device_hours(bills) + math.fsum(lost_device_s(own).values()) / 3600,
                "wall_s_all": math.fsum(cost.wall_s for cost in costs),
                "cpu_s_all": math.fsum(cost.cpu_s for cost in costs),
                "start_up_s_all": math.fsum(attempt.start_up_s for attempt in own),
                "tokens_generated_all": sum(cost.tokens_generated for cost in costs),
                **_peaks(costs),
            }
        )
    return frame(rows, ATTEMPT_COLUMNS)


def _device_hours(costs: Sequence[Cost]) -> float:
    return math.fsum(cost.device_s for cost in costs) / 3600


def _peaks(costs: Sequence[Cost]) -> dict[str, float | None]:
    """The largest memory of any job, in 1e9 bytes; on a GPU null where no job knows its own."""
    on_gpu = [cost.peak_gpu_memory_bytes for cost in costs if cost.peak_gpu_memory_bytes is not None]
    return {
        "peak_memory_gb": max(cost.peak_memory_bytes for cost in costs) / 1e9,
        "peak_gpu_memory_gb": max(on_gpu) / 1e9 if on_gpu else None,
    }
