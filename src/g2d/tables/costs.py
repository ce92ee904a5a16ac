"""Costs of policies by stage and in total: tokens, steps and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from g2d.grid.runs import Policy
from g2d.jobs.cost import Cost
from g2d.jobs.files import parse_json, read_lines
from g2d.tables.frames import Rows, columns, table_of

COST_COLUMNS = columns(
    "model policy K group_size seed regime stage n_jobs wall_s cpu_s device_hours devices device tokens_generated",
    "peak_memory_gb peak_gpu_memory_gb",
    tokens_generated="int64",
)


@table_of(COST_COLUMNS)
def cost_table(costs: Mapping[Policy, Sequence[Cost]]) -> Rows:
    """A row per policy, seed and stage, in the order in which the stages ran; devices and peaks (1e9 bytes) are maxima.

    `costs` has the jobs charged to each policy, oldest first.
    """
    for key, records in costs.items():
        for stage in dict.fromkeys(record.stage for record in records):
            jobs = [record for record in records if record.stage == stage]
            on_gpu = [job.peak_gpu_memory_bytes for job in jobs if job.peak_gpu_memory_bytes is not None]
            yield {
                "model": key.model,
                "policy": key.label,
                "K": key.shown_k,
                "group_size": key.group_size or None,
                "seed": key.seed,
                "regime": key.run_name,
                "stage": stage,
                "n_jobs": len(jobs),
                "wall_s": math.fsum(job.wall_s for job in jobs),
                "cpu_s": math.fsum(job.cpu_s for job in jobs),
                "device_hours": _device_hours(jobs),
                "devices": max(job.devices for job in jobs),
                "device": ", ".join(dict.fromkeys(job.device for job in jobs)),
                "tokens_generated": sum(job.tokens_generated for job in jobs),
                "peak_memory_gb": max(job.peak_memory_bytes for job in jobs) / 1e9,
                "peak_gpu_memory_gb": max(on_gpu) / 1e9 if on_gpu else None,
            }


def _device_hours(costs: Sequence[Cost]) -> float:
    return math.fsum(cost.device_s for cost in costs) / 3600


def calibration_hours(records: Sequence[Cost]) -> float:
    """Return the calibration's part of a policy's device-hours; the paper does not count it."""
    return _device_hours([record for record in records if record.stage == "calibrate"])


def spent_on(records: Sequence[Cost], path: Callable[[str], Path] = Path) -> dict[str, float]:
    """Count tokens and gradient steps of the jobs that made a policy, from records and logs of trainings."""
    # A chain of K has a folder per K, and the last one has the whole log.
    logs: dict[Path, Path] = {}
    for record in records:
        folder = Path(record.job).parent
        if record.stage.startswith("train_"):
            logs[folder.parent] = folder
    updates = 0
    for folder in logs.values():
        log = read_log(path(f"{folder}/metrics.jsonl"))
        if log:
            updates += log[-1]["step"]
    return {"tokens_generated": sum(record.tokens_generated for record in records), "updates": updates}


def read_log(file: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl; it is empty after a training on a harvest without data."""
    return [parse_json(line) for _, line in read_lines(file)]
