"""Costs of policies by stage and in total (tokens, steps, time, energy, money), and of all attempts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean as mean_of
from typing import Any

from g2d.experiment.arms import Arm, arms
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey
from g2d.experiment.prompt_counts import online_phases, prompts_asked
from g2d.experiment.sections import Price
from g2d.jobs.attempts import ENDED_BADLY, Attempt, kept, lost, lost_device_s
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
    "peak_memory_gb peak_gpu_memory_gb n_lost_attempts device_hours_with_lost_attempts",
    tokens_generated="int64",
)
COST_COLUMNS_WHERE_KNOWN = columns("gpu_energy_kwh money overlap_s currency")
ATTEMPT_COLUMNS = columns(
    "stage n_jobs n_attempts n_failed n_stopped n_killed n_repeated device_hours_kept device_hours_all wall_s_all",
    "cpu_s_all start_up_s_all tokens_generated_all peak_memory_gb peak_gpu_memory_gb",
)


@table_of(COST_COLUMNS, COST_COLUMNS_WHERE_KNOWN)
def cost_table(
    costs: Mapping[PolicyKey, Sequence[Cost]], attempts: Sequence[Attempt] = (), price: Price | None = None
) -> Rows:
    """A row per policy, seed and stage, in the order in which the stages ran; devices and peaks (1e9 bytes) are maxima.

    Args:
        costs: jobs charged to each policy, oldest first.
        attempts: all attempts of the grid.
    """
    lost_attempts, lost_s = lost(attempts), lost_device_s(attempts)
    for key, records in costs.items():
        for stage in dict.fromkeys(record.stage for record in records):
            jobs = [record for record in records if record.stage == stage]
            lost_hours = math.fsum(lost_s.get(job.key, 0.0) for job in jobs) / 3600
            yield {
                **{"model": key.model, "policy": key.label, "K": key.shown_k, "group_size": key.group_size or None},
                **{"seed": key.seed, "regime": key.regime, "stage": stage, "n_jobs": len(jobs)},
                **_totals(jobs),
                "devices": max(job.devices for job in jobs),
                "device": ", ".join(dict.fromkeys(job.device for job in jobs)),
                **_peaks(jobs),
                "n_lost_attempts": sum(len(lost_attempts.get(job.key, [])) for job in jobs),
                "device_hours_with_lost_attempts": _device_hours(jobs) + lost_hours,
                **{"gpu_energy_kwh": gpu_energy_kwh(jobs), "money": money(jobs, price), "overlap_s": _overlap_s(jobs)},
                "currency": price.currency if price else None,
            }


@table_of(ATTEMPT_COLUMNS)
def attempt_table(attempts: Sequence[Attempt]) -> Rows:
    """A row per stage, then one for all stages: the cost of all finished attempts (`_all` and peaks), and of the last
    successful attempt of each job with the attempts it continued (device_hours_kept).
    """
    stages = list(dict.fromkeys(attempt.cost.stage for attempt in sorted(attempts, key=lambda a: a.started)))
    for stage in [*stages, "all"] if stages else []:
        of_stage = [attempt for attempt in attempts if stage in (attempt.cost.stage, "all")]
        costs = [attempt.cost for attempt in of_stage]
        kept_costs = [attempt.bill for attempt in kept(of_stage).values()]
        statuses = Counter(attempt.status for attempt in of_stage)
        yield {
            **{"stage": stage, "n_jobs": len({cost.key for cost in costs}), "n_attempts": len(of_stage)},
            **{f"n_{status}": statuses[status] for status in ENDED_BADLY},
            "n_repeated": statuses["ok"] - len(kept_costs),
            **{f"{name}_all": total for name, total in _totals(costs).items()},
            "device_hours_kept": _device_hours(kept_costs),
            "device_hours_all": _device_hours(kept_costs) + math.fsum(lost_device_s(of_stage).values()) / 3600,
            "start_up_s_all": math.fsum(attempt.start_up_s for attempt in of_stage),
            **_peaks(costs),
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


def gpu_energy_kwh(costs: Sequence[Cost]) -> float | None:
    """Return the energy that the GPUs of jobs report; None without a GPU, or if one reports nothing."""
    joules = [cost.gpu_energy_j for cost in costs if cost.device != "cpu"]
    reported = [energy for energy in joules if energy is not None]
    return math.fsum(reported) / 3.6e6 if reported and len(reported) == len(joules) else None


def money(costs: Sequence[Cost], price: Price | None) -> float | None:
    """Return the cost of jobs at the prices of their devices; None if a price is missing."""
    rates = [price.per_hour(cost.device) if price else None for cost in costs]
    amounts = [cost.device_s / 3600 * rate for cost, rate in zip(costs, rates, strict=True) if rate is not None]
    return math.fsum(amounts) if price and len(amounts) == len(costs) else None


def _overlap_s(costs: Sequence[Cost]) -> float | None:
    overlaps = [cost.overlap_s for cost in costs if cost.overlap_s is not None]
    return math.fsum(overlaps) if overlaps else None


def _axes(costs: Sequence[Cost], price: Price | None) -> dict[str, float]:
    costs_by_axis = {
        "tokens_generated": sum(cost.tokens_generated for cost in costs),
        "device_hours": _device_hours(costs),
        "gpu_energy_kwh": gpu_energy_kwh(costs),
        "money": money(costs, price),
    }
    return {axis: cost for axis, cost in costs_by_axis.items() if cost is not None}


def _peaks(costs: Sequence[Cost]) -> dict[str, float | None]:
    on_gpu = [cost.peak_gpu_memory_bytes for cost in costs if cost.peak_gpu_memory_bytes is not None]
    return {
        "peak_memory_gb": max(cost.peak_memory_bytes for cost in costs) / 1e9,
        "peak_gpu_memory_gb": max(on_gpu) / 1e9 if on_gpu else None,
    }


def costs_of(key: PolicyKey, records: Sequence[Cost], spent: Mapping[str, float], config: Config) -> dict[str, float]:
    """Return a policy's cost on each axis, from the jobs that made it and `spent_on`; missing or NaN if unknown."""
    return {
        **_axes(records, config.price_per_device_hour),
        **{axis: spent[axis] for axis in ("tokens_generated", "updates")},
        "paper_hours": paper_hours(key, config),
        "critical_path_hours": critical_path_s(records) / 3600,
    }


def calibration_of(records: Sequence[Cost], price: Price | None = None) -> dict[str, float]:
    """Return the calibration's part of a policy's costs; the paper does not count it."""
    calibration = [record for record in records if record.stage == "calibrate"]
    rest = [record for record in records if record.stage != "calibrate"]
    path_s = critical_path_s(records) - critical_path_s(rest)
    return _axes(calibration, price) | {"critical_path_hours": path_s / 3600}


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
