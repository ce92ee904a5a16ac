"""Costs of policies by stage and in total: tokens, steps and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean as mean_of
from typing import Any

from g2d.experiment.arms import Arm, arms
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey
from g2d.experiment.prompt_counts import online_phases, prompts_asked
from g2d.jobs.cost import Cost
from g2d.jobs.files import parse_json, read_lines
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import ROW, Evaluations, by_policy
from g2d.tables.frames import Rows, columns, mean, table_of

# GPU-hours of 7-8B models on one A100 80GB, from the paper's Table 1. GRPO with K=1000 took 26.6 and 27.2 hours at G=2,
# 52.2 and 54.2 at G=4. A step takes twice as long at G=4, so both have as many prompts: 8, from the batch of 4 x 4
# completions at G=2 in appendix B.
HOURS_PER_COMPLETION = mean_of((26.6 / 16_000, 27.2 / 16_000, 52.2 / 32_000, 54.2 / 32_000))
# DPO with K=0: 12,000 rollouts and DPO on their pairs; each stage gets half.
HOURS_OF_HARVEST_AND_DPO = mean_of((2.2, 2.6))
PUBLISHED = {
    "train_grpo": HOURS_PER_COMPLETION,
    "train_semi_online_dpo": HOURS_PER_COMPLETION,  # the rate of GRPO, because both mostly generate
    "harvest_rollouts": HOURS_OF_HARVEST_AND_DPO / 2,
    "train_dpo": HOURS_OF_HARVEST_AND_DPO / 2,
}
OF_CHECKPOINTS = ("answer_development", "reply_to_development")
COST_COLUMNS = columns(
    "model policy K group_size seed regime stage n_jobs wall_s cpu_s device_hours devices device tokens_generated",
    "peak_memory_gb peak_gpu_memory_gb",
    tokens_generated="int64",
)


@table_of(COST_COLUMNS, columns("overlap_s"))
def cost_table(costs: Mapping[PolicyKey, Sequence[Cost]]) -> Rows:
    """A row per policy, seed and stage, in the order in which the stages ran; devices and peaks (1e9 bytes) are maxima.

    `costs` has the jobs charged to each policy, oldest first.
    """
    for key, records in costs.items():
        for stage in dict.fromkeys(record.stage for record in records):
            jobs = [record for record in records if record.stage == stage]
            yield {
                **{"model": key.model, "policy": key.label, "K": key.shown_k, "group_size": key.group_size or None},
                **{"seed": key.seed, "regime": key.regime, "stage": stage, "n_jobs": len(jobs)},
                **_totals(jobs),
                "devices": max(job.devices for job in jobs),
                "device": ", ".join(dict.fromkeys(job.device for job in jobs)),
                **_peaks(jobs),
                "overlap_s": _overlap_s(jobs),
            }


def _device_hours(costs: Sequence[Cost]) -> float:
    return math.fsum(cost.device_s for cost in costs) / 3600


def _totals(costs: Sequence[Cost]) -> dict[str, float]:
    return {
        "wall_s": math.fsum(cost.wall_s for cost in costs),
        "cpu_s": math.fsum(cost.cpu_s for cost in costs),
        "device_hours": _device_hours(costs),
        "tokens_generated": sum(cost.tokens_generated for cost in costs),
    }


def _overlap_s(costs: Sequence[Cost]) -> float | None:
    overlaps = [cost.overlap_s for cost in costs if cost.overlap_s is not None]
    return math.fsum(overlaps) if overlaps else None


def _axes(costs: Sequence[Cost]) -> dict[str, float]:
    return {"tokens_generated": sum(cost.tokens_generated for cost in costs), "device_hours": _device_hours(costs)}


def _peaks(costs: Sequence[Cost]) -> dict[str, float | None]:
    on_gpu = [cost.peak_gpu_memory_bytes for cost in costs if cost.peak_gpu_memory_bytes is not None]
    return {
        "peak_memory_gb": max(cost.peak_memory_bytes for cost in costs) / 1e9,
        "peak_gpu_memory_gb": max(on_gpu) / 1e9 if on_gpu else None,
    }


def costs_of(key: PolicyKey, records: Sequence[Cost], spent: Mapping[str, float], config: Config) -> dict[str, float]:
    """Return a policy's cost on each axis, from the jobs that made it and `spent_on`; missing or NaN if unknown."""
    return {
        **_axes(records),
        **{axis: spent[axis] for axis in ("tokens_generated", "updates")},
        "paper_hours": paper_hours(key, config),
        "critical_path_hours": critical_path_s(records) / 3600,
    }


def calibration_of(records: Sequence[Cost]) -> dict[str, float]:
    """Return the calibration's part of a policy's costs; the paper does not count it."""
    calibration = [record for record in records if record.stage == "calibrate"]
    rest = [record for record in records if record.stage != "calibrate"]
    path_s = critical_path_s(records) - critical_path_s(rest)
    return _axes(calibration) | {"critical_path_hours": path_s / 3600}


def critical_path_s(records: Sequence[Cost]) -> float:
    """Return seconds from the first job behind a policy to its last, with as many devices as can be used.

    Stages run one after another; of shards of a stage and answers of checkpoints the slowest counts. A training with a
    lag generates during its updates.
    """
    slowest: dict[str, float] = {}
    total = 0.0
    for record in records:
        whole, is_shard, _ = record.job.partition(".shards/")
        if record.stage in OF_CHECKPOINTS:
            whole, is_shard = record.stage, record.stage
        if is_shard:
            slowest[whole] = max(slowest.get(whole, 0.0), record.wall_s)
        else:
            total += record.wall_s - (record.overlap_s or 0)
    return total + math.fsum(slowest.values())


def paper_hours(key: PolicyKey, config: Config) -> float:
    """Return GPU-hours at the rates `PUBLISHED`, without calibration; NaN without a rate."""
    if key.kind == "base":
        return 0.0
    hours = 0.0
    for regime, n_prompts, group_size in online_phases(key):
        hours += PUBLISHED.get(f"train_{regime}", math.nan) * n_prompts * group_size
    if key.arm.phase == "offline":
        hours += PUBLISHED["harvest_rollouts"] + PUBLISHED.get(f"train_{key.kind}", math.nan)
    return hours


SPENT = ("updates", "empty_updates", "prompts", "tokens_generated", "tokens_trained")
REGIME_COLUMNS = columns(ROW, "n_seeds accuracy ci_low ci_high", *SPENT, "device_hours", prompts="float64")


@table_of(REGIME_COLUMNS)
def regime_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    spent: Mapping[PolicyKey, Mapping[str, float]],
) -> Rows:
    """A row per policy, without ablations of DPO: accuracy and `spent_on`, means over seeds."""
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation or key.kind == "grpo")
    for (_, benchmark), by_key in grouped.items():
        row = accuracy_row(by_key, device_hours, benchmark)
        by_seed = [spent[key] for key in by_key if key in spent] or [dict.fromkeys(SPENT, 0.0)]  # M0 took nothing
        yield row | {name: mean(seed.get(name) for seed in by_seed) for name in SPENT}


def spent_on(
    key: PolicyKey, records: Sequence[Cost], config: Config, path: Callable[[str], Path] = Path
) -> dict[str, float]:
    """Count gradient steps, prompts and tokens of the jobs that made a policy, from records and logs of trainings."""
    # A chain of K has a folder per K, and the last one has the whole log.
    trainings: dict[Path, tuple[Arm | None, Path]] = {}
    for record in records:
        folder = Path(record.job).parent
        arm = arms(config, key.model).get("/".join(folder.parts[3:-2]))
        if record.stage.startswith("train_"):
            trainings[folder.parent] = (arm, folder)
    logs = [(arm, read_log(path(f"{folder}/metrics.jsonl"))) for arm, folder in trainings.values()]
    steps = [step for _, log in logs for step in log]
    return {
        "updates": sum(log[-1]["step"] for _, log in logs),
        "empty_updates": sum(step.get("pairs") == 0 for step in steps),
        "prompts": prompts_asked(config, key) + sum(step.get("prompts/discarded", 0) for step in steps),
        "tokens_generated": sum(record.tokens_generated for record in records),
        "tokens_trained": sum(_tokens_trained(arm, log) for arm, log in logs),
    }


def _tokens_trained(arm: Arm | None, log: Sequence[Mapping[str, float]]) -> float:
    counted = max(row["num_tokens"] for row in log if "num_tokens" in row)
    return counted * (getattr(arm.settings, "iterations", 1) if arm else 1)


def read_log(file: Path) -> list[dict[str, Any]]:
    return [parse_json(line) for _, line in read_lines(file)]
