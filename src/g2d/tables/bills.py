"""The bill: what the stages behind every policy cost, what every policy took, and what all attempts cost."""

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
from g2d.regimes.catalogue import REGIMES
from g2d.tables.accuracy import accuracy_row
from g2d.tables.evaluations import ROW, Evaluations, by_policy
from g2d.tables.frames import Rows, columns, mean, table_of

# Rates of the paper's Table 1, GPU-hours of 7-8B models on one A100 80GB. GRPO with K=1000: 26.6, 27.2 (G=2) and 52.2,
# 54.2 (G=4) for 1000 steps of 8 x G completions: a step takes twice as long with G=4, so it has as many prompts, 8 by
# appendix B's batch of 4 x 4 completions at G=2.
HOURS_PER_COMPLETION = mean_of((26.6 / 16_000, 27.2 / 16_000, 52.2 / 32_000, 54.2 / 32_000))
# DPO with K=0: 2.2 and 2.6 for 12,000 rollouts and DPO on their pairs, split in half here.
HOURS_OF_HARVEST_AND_DPO = mean_of((2.2, 2.6))
PUBLISHED = {
    "train_grpo": HOURS_PER_COMPLETION,
    "train_semi_online_dpo": HOURS_PER_COMPLETION,  # GRPO's, which generates most of the time as well
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
    bills: Mapping[PolicyKey, Sequence[Cost]], attempts: Sequence[Attempt] = (), price: Price | None = None
) -> Rows:
    """The bill: what each stage behind a policy cost, by seed, stages in the order in which they ran. Times and tokens
    are sums over the stage's jobs, devices and the peaks (1e9 bytes) the largest.

    Args:
        bills: the jobs on each policy's bill, oldest first.
        attempts: all attempts at the jobs of the grid, from `read_attempts`.
    """
    without_result, in_vain = lost(attempts), lost_device_s(attempts)
    for key, bill in bills.items():
        for stage in dict.fromkeys(record.stage for record in bill):
            jobs = [record for record in bill if record.stage == stage]
            lost_s = math.fsum(in_vain.get(job.key, 0.0) for job in jobs)
            yield {
                **{"model": key.model, "policy": key.label, "K": key.shown_k, "group_size": key.group_size or None},
                **{"seed": key.seed, "regime": key.regime, "stage": stage, "n_jobs": len(jobs)},
                **_totals(jobs),
                "devices": max(job.devices for job in jobs),
                "device": ", ".join(dict.fromkeys(job.device for job in jobs)),
                **_peaks(jobs),
                "n_lost_attempts": sum(len(without_result.get(job.key, [])) for job in jobs),
                "device_hours_with_lost_attempts": _device_hours(jobs) + lost_s / 3600,
                **{"gpu_energy_kwh": gpu_energy_kwh(jobs), "money": money(jobs, price), "overlap_s": _overlap_s(jobs)},
                "currency": price.currency if price else None,
            }


@table_of(ATTEMPT_COLUMNS)
def attempt_table(attempts: Sequence[Attempt]) -> Rows:
    """What the grid really cost, beside what the results that were kept cost: by stage, then in a row called "all". The
    columns that end in `_all` and the peaks are over all attempts that are over; device_hours_kept is of every job's
    last successful one, with what it went on from."""
    stages = list(dict.fromkeys(attempt.cost.stage for attempt in sorted(attempts, key=lambda a: a.started)))
    for stage in [*stages, "all"] if stages else []:
        own = [attempt for attempt in attempts if stage in (attempt.cost.stage, "all")]
        costs = [attempt.cost for attempt in own]
        bills = [attempt.bill for attempt in kept(own).values()]
        statuses = Counter(attempt.status for attempt in own)
        yield {
            **{"stage": stage, "n_jobs": len({cost.key for cost in costs}), "n_attempts": len(own)},
            **{f"n_{status}": statuses[status] for status in ENDED_BADLY},
            "n_repeated": statuses["ok"] - len(bills),
            **{f"{name}_all": total for name, total in _totals(costs).items()},
            "device_hours_kept": _device_hours(bills),
            "device_hours_all": _device_hours(bills) + math.fsum(lost_device_s(own).values()) / 3600,
            "start_up_s_all": math.fsum(attempt.start_up_s for attempt in own),
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
    """What the GPUs of jobs used, as they report it; None without a GPU, or where one did not report it."""
    joules = [cost.gpu_energy_j for cost in costs if cost.device != "cpu"]
    known = [used for used in joules if used is not None]
    return math.fsum(known) / 3.6e6 if known and len(known) == len(joules) else None


def money(costs: Sequence[Cost], price: Price | None) -> float | None:
    """What jobs cost at the price of their devices; None without one, or where a device has none."""
    rates = [price.per_hour(cost.device) if price else None for cost in costs]
    amounts = [cost.device_s / 3600 * rate for cost, rate in zip(costs, rates, strict=True) if rate is not None]
    return math.fsum(amounts) if price and len(amounts) == len(costs) else None


def _overlap_s(costs: Sequence[Cost]) -> float | None:
    """What jobs with a lag would have saved if they were asynchronous; None without one."""
    known = [cost.overlap_s for cost in costs if cost.overlap_s is not None]
    return math.fsum(known) if known else None


def _axes(costs: Sequence[Cost], price: Price | None) -> dict[str, float]:
    """What jobs cost, on the axes that are known for every job."""
    found = {
        "tokens_generated": sum(cost.tokens_generated for cost in costs),
        "device_hours": _device_hours(costs),
        "gpu_energy_kwh": gpu_energy_kwh(costs),
        "money": money(costs, price),
    }
    return {axis: cost for axis, cost in found.items() if cost is not None}


def _peaks(costs: Sequence[Cost]) -> dict[str, float | None]:
    """The largest memory of any job, in 1e9 bytes; on a GPU null where no job knows its own."""
    on_gpu = [cost.peak_gpu_memory_bytes for cost in costs if cost.peak_gpu_memory_bytes is not None]
    return {
        "peak_memory_gb": max(cost.peak_memory_bytes for cost in costs) / 1e9,
        "peak_gpu_memory_gb": max(on_gpu) / 1e9 if on_gpu else None,
    }


def costs_of(key: PolicyKey, bill: Sequence[Cost], spent: Mapping[str, float], config: Config) -> dict[str, float]:
    """What a policy cost that these jobs made, on every axis; NaN where unknown, and without energy and money where
    these are. `spent` is from `spent_on`."""
    return {
        **_axes(bill, config.price_per_device_hour),
        **{axis: spent[axis] for axis in ("tokens_generated", "updates")},
        "paper_hours": paper_hours(key, config),
        "critical_path_hours": critical_path_s(bill) / 3600,
    }


def calibration_of(bill: Sequence[Cost], price: Price | None = None) -> dict[str, float]:
    """What calibration has of a policy's costs: it has no gradient steps, and the paper does not count it."""
    own = [record for record in bill if record.stage == "calibrate"]
    rest = [record for record in bill if record.stage != "calibrate"]
    return _axes(own, price) | {"critical_path_hours": (critical_path_s(bill) - critical_path_s(rest)) / 3600}


def critical_path_s(bill: Sequence[Cost]) -> float:
    """Seconds from the first job behind a policy to its last with as many devices as can be used.

    What is behind one policy is a chain, calibration, online phase, harvest, training, in which only the shards of a
    stage run side by side, and the answers of the checkpoints that one is selected from: of these the slowest counts.
    A training with a lag generates beside its updates.
    """
    shards: dict[str, float] = {}
    total = 0.0
    for record in bill:
        whole, is_shard, _ = record.job.partition(".shards/")
        if record.stage in OF_CHECKPOINTS:  # one for every candidate
            whole, is_shard = record.stage, record.stage
        if is_shard:
            shards[whole] = max(shards.get(whole, 0.0), record.wall_s)
        else:
            total += record.wall_s - (record.overlap_s or 0)
    return total + math.fsum(shards.values())


def paper_hours(key: PolicyKey, config: Config) -> float:
    """GPU-hours of a 7-8B model on one A100 at the rates of the paper's Table 1, without calibration, as there.

    NaN for a training that the table does not have.
    """
    if key.kind == "base":
        return 0.0
    if key.in_rounds:
        return key.shown_k * (PUBLISHED["harvest_rollouts"] + PUBLISHED["train_dpo"])
    hours = 0.0
    for regime, asked, group_size in online_phases(config, key):
        hours += PUBLISHED.get(f"train_{regime}", math.nan) * asked * group_size
    if REGIMES[key.kind].phase == "offline":
        hours += PUBLISHED["harvest_rollouts"] + PUBLISHED.get(f"train_{key.kind}", math.nan)
    return hours


SPENT = ("updates", "empty_updates", "prompts", "tokens_generated", "tokens_trained")
REGIME_COLUMNS = columns(ROW, "n_seeds accuracy ci_low ci_high", *SPENT, "device_hours", prompts="float64")


@table_of(REGIME_COLUMNS, where_known=columns("tokens_scored"))
def regime_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    spent: Mapping[PolicyKey, Mapping[str, float]],
) -> Rows:
    """Every policy that is no ablation of DPO, with what was spent on it (`spent_on`), means over seeds; M0 took
    nothing."""
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation or key.kind == "grpo")
    for (_, benchmark), own in grouped.items():
        row = accuracy_row(own, device_hours, benchmark)
        known = [spent[key] for key in own if key in spent] or [dict.fromkeys(SPENT, 0.0)]
        yield row | {name: mean(found.get(name) for found in known) for name in (*SPENT, "tokens_scored")}


def spent_on(
    key: PolicyKey, bill: Sequence[Cost], config: Config, path: Callable[[str], Path] = Path
) -> dict[str, float]:
    """What is behind a policy: gradient steps, prompts, tokens generated, trained on and, by a teacher, scored.

    Args:
        bill: the records of the jobs it was made by; the metrics of its trainings lie beside their bills.
        path: of a file, from what jobs call it.
    """
    # The logs of a chain, one folder of which is a K, go on from one another; a round's begins anew.
    trainings: dict[Path, tuple[Arm | None, Path]] = {}
    for record in bill:
        if record.stage.startswith("train_"):
            folder = Path(record.job).parent
            arm = arms(config, key.model).get("/".join(folder.parts[3:-2]))
            trainings[folder if arm and arm.phase == "rounds" else folder.parent] = (arm, folder)
    found = [(arm, read_log(path(f"{folder}/metrics.jsonl"))) for arm, folder in trainings.values()]
    logs = [rows for _, rows in found]
    scored = [row["tokens/scored"] for rows in logs for row in rows if "tokens/scored" in row]
    return {
        "updates": sum(rows[-1]["step"] for rows in logs),
        "empty_updates": sum(row.get("pairs") == 0 for rows in logs for row in rows),
        "prompts": prompts_asked(config, key) + sum(row.get("prompts/discarded", 0) for rows in logs for row in rows),
        "tokens_generated": sum(record.tokens_generated for record in bill),
        "tokens_trained": sum(_tokens_trained(arm, rows) for arm, rows in found),
        **({"tokens_scored": sum(scored)} if scored else {}),
    }


def _tokens_trained(arm: Arm | None, rows: Sequence[Mapping[str, float]]) -> float:
    """The trainer's running count, times how often each token is trained on: GRPO's counts those of a generation, in
    the row of the first gradient step that it serves."""
    counted = max(row["num_tokens"] for row in rows if "num_tokens" in row)
    return counted * (getattr(arm.settings, "iterations", 1) if arm else 1)


def read_log(file: Path) -> list[dict[str, Any]]:
    """What a trainer logged, by step."""
    return [parse_json(line) for _, line in read_lines(file)]
