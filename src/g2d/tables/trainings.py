"""Tables of trainings: costs by stage, training curves, and probes of automatic warm-ups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.analysis.training_steps import MEASURES, binned
from g2d.grid.runs import Policy
from g2d.jobs.cost import Cost
from g2d.jobs.files import parse_json, read_lines
from g2d.regimes.grpo.auto_stop import PROBE_COLUMNS
from g2d.tables.frames import Rows, columns, estimate, table_of

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
    for policy, records in costs.items():
        if not records:
            continue
        for stage, jobs in pd.DataFrame(records).groupby("stage", sort=False):
            yield {
                "model": policy.model,
                "policy": policy.label,
                "K": policy.shown_k,
                "group_size": policy.group_size or None,
                "seed": policy.seed,
                "regime": policy.run_name,
                "stage": stage,
                "n_jobs": len(jobs),
                "wall_s": math.fsum(jobs["wall_s"]),
                "cpu_s": math.fsum(jobs["cpu_s"]),
                "device_hours": math.fsum(jobs["device_s"]) / 3600,
                "devices": jobs["devices"].max(),
                "device": ", ".join(jobs["device"].unique()),
                "tokens_generated": jobs["tokens_generated"].sum(),
                "peak_memory_gb": jobs["peak_memory_bytes"].max() / 1e9,
                "peak_gpu_memory_gb": jobs["peak_gpu_memory_bytes"].astype(float).max() / 1e9,
            }


def calibration_hours(records: Sequence[Cost]) -> float:
    """Return the calibration's part of a policy's device-hours; the paper does not count it."""
    return math.fsum(record.device_s for record in records if record.stage == "calibrate") / 3600


def spent_on(records: Sequence[Cost], path: Callable[[str], Path] = Path) -> dict[str, float]:
    """Count tokens and gradient steps of the jobs that made a policy, from records and logs of trainings."""
    tokens = 0
    # A chain of K has a folder per K, and the last one has the whole log.
    logs: dict[Path, Path] = {}
    for record in records:
        tokens += record.tokens_generated
        folder = Path(record.job).parent
        if record.stage.startswith("train_"):
            logs[folder.parent] = folder
    updates = 0
    for folder in logs.values():
        log = read_log(path(f"{folder}/metrics.jsonl"))
        if log:
            updates += log[-1]["step"]
    return {"tokens_generated": tokens, "updates": updates}


def read_log(file: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl; it is empty after a training on a harvest without data."""
    return [parse_json(line) for _, line in read_lines(file)]


TRAINING_COLUMNS = columns("model measure policy group_size n_seeds step tokens value value_low value_high")


@table_of(TRAINING_COLUMNS)
def training_table(logs: Mapping[Policy, pd.DataFrame]) -> Rows:
    """A row per online training, logged measure and twentieth of its steps: mean and range over seeds."""
    grouped: dict[Policy, list[pd.DataFrame]] = {}
    for policy, steps in logs.items():
        grouped.setdefault(policy.over_seeds, []).append(binned(steps))
    for measure, (policy, courses) in product(MEASURES, grouped.items()):
        stretches = pd.concat(courses).groupby(level=0)
        mean = stretches[["step", "tokens", measure]].mean()
        mean = mean.assign(low=stretches[measure].min(), high=stretches[measure].max())
        for row in mean.dropna().to_dict("records"):
            yield {
                "model": policy.model,
                "measure": measure,
                "policy": policy.run_name,
                "group_size": policy.group_size,
                "n_seeds": len(courses),
                "step": round(row["step"]),
                "tokens": row["tokens"],
                **estimate("value", row[measure], (row["low"], row["high"])),
            }


AUTO_COLUMNS = columns("model group_size seed") | PROBE_COLUMNS


@table_of(AUTO_COLUMNS)
def auto_table(probes: Mapping[Policy, pd.DataFrame]) -> Rows:
    """A row per automatic warm-up, seed and probe; H and mu are null if no prompt was pairable."""
    models = list(dict.fromkeys(policy.model for policy in probes))

    def position(policy: Policy) -> tuple[int, int, int | None]:
        return models.index(policy.model), policy.group_size, policy.seed

    for policy in sorted(probes, key=position):
        names = {"model": policy.model, "group_size": policy.group_size, "seed": policy.seed}
        for probe in probes[policy].to_dict("records"):
            yield names | probe
