"""The paper's Tables 1 to 4 and the bill, as tidy frames built from evaluations, harvests and cost records.

Pure builders: which files exist is the caller's knowledge, and the rows follow the order of the grid whatever order
they are handed in. Accuracies and other shares lie in 0..1; what does not apply or cannot be computed is null.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from g2d.attempts import ENDED_BADLY, Attempt, kept, lost
from g2d.cost import Cost
from g2d.files import atomic, read_lines
from g2d.grid import HarvestKey, PolicyKey
from g2d.informativeness import Informativeness
from g2d.statistics import hierarchical_bootstrap, pearson, standard_deviation

Evaluations = Mapping[tuple[PolicyKey, str], pd.DataFrame]  # (policy, benchmark): rows as in `Rollout`
Column = tuple[str, str, int, int]  # model, regime, group_size, k: one policy over its seeds

MAIN_REGIMES = ("base", "dpo", "grpo")  # Table 1; any other regime is an ablation

MAIN_COLUMNS = (
    "model",
    "policy",
    "K",
    "group_size",
    "benchmark",
    "n_seeds",
    "n_problems",
    "accuracy",
    "std_over_seeds",
    "ci_low",
    "ci_high",
    "device_hours",
)
ABLATION_COLUMNS = (*MAIN_COLUMNS, "n_pairs", "change")

HARVEST_METRICS = {  # column: attribute of Informativeness
    "harvest_pass_at_1": "pass_at_1",
    "pairability": "pairability",
    "n_pairs": "n_pairable",
    "entropy": "entropy",
    "mid_band": "mid_band",
    "format_compliance": "format_compliance",
    "truncated_share": "truncated_share",
    "mean_length": "mean_length",
    "disputed_share": "disputed_share",
}
HARVEST_COLUMNS = (
    "model",
    "group_size",
    "K",
    "n_seeds",
    *HARVEST_METRICS,
    *(f"{metric}_std" for metric in HARVEST_METRICS),
)

CORRELATED_METRICS = ("pairability", "entropy", "mid_band")
CORRELATION_COLUMNS = ("model", "benchmark", "metric", "n", "pearson_r", "p_value")

COST_COLUMNS = (
    "model",
    "policy",
    "K",
    "group_size",
    "seed",
    "regime",
    "stage",
    "n_jobs",
    "wall_s",
    "cpu_s",
    "device_hours",
    "devices",
    "device",
    "tokens_generated",
    "peak_memory_gb",
    "peak_gpu_memory_gb",
    "n_lost_attempts",
    "device_hours_with_lost_attempts",
)
ATTEMPT_COLUMNS = (
    "stage",
    "n_jobs",
    "n_attempts",
    "n_failed",
    "n_stopped",
    "n_killed",
    "n_repeated",
    "device_hours_kept",
    "device_hours_all",
    "wall_s_all",
    "cpu_s_all",
    "start_up_s_all",
    "tokens_generated_all",
    "peak_memory_gb",
    "peak_gpu_memory_gb",
)

DISPUTE_COLUMNS = ("source", "problem_id", "reference_answer", "extracted_answer", "verdict", "n_rollouts")

_TYPES: dict[Hashable, str] = {
    **dict.fromkeys(["K", "n_seeds", "n_problems", "n_jobs", "n", "tokens_generated"], "int64"),
    **dict.fromkeys(["pairable", "all_wrong", "all_correct", "devices"], "int64"),
    **dict.fromkeys(["group_size", "seed"], "Int64"),
    **dict.fromkeys(["accuracy", "std_over_seeds", "ci_low", "ci_high", "device_hours"], "float64"),
    **dict.fromkeys([*HARVEST_METRICS, *(f"{metric}_std" for metric in HARVEST_METRICS)], "float64"),
    **dict.fromkeys(["pearson_r", "p_value", "wall_s", "cpu_s", "peak_memory_gb"], "float64"),
    **dict.fromkeys(["pass_at_1", "pairable_share", "all_wrong_share", "all_correct_share"], "float64"),
    **dict.fromkeys(["model", "policy", "benchmark", "metric", "stage", "regime", "device", "change"], "object"),
    **dict.fromkeys(["source", "problem_id", "reference_answer", "extracted_answer", "verdict"], "object"),
    **dict.fromkeys(["n_attempts", "n_failed", "n_stopped", "n_killed", "n_repeated", "n_lost_attempts"], "int64"),
    **dict.fromkeys(["device_hours_kept", "device_hours_all", "device_hours_with_lost_attempts"], "float64"),
    **dict.fromkeys(["wall_s_all", "cpu_s_all", "start_up_s_all", "peak_gpu_memory_gb"], "float64"),
    "tokens_generated_all": "int64",
    "n_rollouts": "int64",
    "levels": "object",
    "selected": "bool",
}


# ------------------------------------------------------------------------------------------------------- Tables 1, 3


def main_table(evaluations: Evaluations, device_hours: Mapping[PolicyKey, float]) -> pd.DataFrame:
    """Table 1: M0, DPO, G2D by K and GRPO on every benchmark; ablations are left to `ablation_table`.

    Args:
        evaluations: the answers of every policy, seed and benchmark.
        device_hours: the bill of every policy; policies that have none get null.

    Returns:
        `MAIN_COLUMNS`, one row per (model, policy, K, group_size, benchmark). accuracy is the mean over samples, then
        problems, then seeds; std_over_seeds the sample standard deviation (ddof=1) of the seeds' accuracies, null for
        one seed; ci_low and ci_high the 95 % interval of `hierarchical_bootstrap`; device_hours the mean over seeds.

    Raises:
        ValueError: the seeds of a policy answered different problems.
    """
    grouped = _by_policy(evaluations, keep=lambda key: key.regime in MAIN_REGIMES)
    order = _grid_order(grouped, regimes=MAIN_REGIMES)
    return _frame((_accuracy_row(grouped[at], device_hours, at[1]) for at in order), MAIN_COLUMNS)


def ablation_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    descriptions: Mapping[str, Mapping[str, Any]],
    n_pairs: Mapping[PolicyKey, int],
) -> pd.DataFrame:
    """Table 3: every ablation below the policy it differs from, the dpo regime at the same model, K and G.

    Args:
        evaluations: as for `main_table`.
        device_hours: as for `main_table`.
        descriptions: by ablation, the keys it changes and their values; its order is the order of the rows.
        n_pairs: pairs that each policy was trained on.

    Returns:
        `ABLATION_COLUMNS`: as `main_table`, then n_pairs (mean over seeds) and change, for example "loss=ipo", or
        "reference".

    Raises:
        ValueError: the seeds of a policy answered different problems, or an ablation has no description.
    """
    ablated = {(key.model, key.group_size, key.k) for key, _ in evaluations if key.regime not in MAIN_REGIMES}
    grouped = _by_policy(
        evaluations,
        keep=lambda key: key.regime not in ("base", "grpo") and (key.model, key.group_size, key.k) in ablated,
    )
    if unknown := sorted({column[1] for column, _ in grouped} - {"dpo", *descriptions}):
        raise ValueError(f"no description of the ablation {unknown[0]!r}")
    rows = []
    for at in _grid_order(grouped, regimes=("dpo", *descriptions), k_first=True):
        regime, policies = at[0][1], grouped[at]
        changed = ", ".join(f"{name}={value}" for name, value in descriptions.get(regime, {}).items())
        pairs = [n_pairs[key] for key in policies if key in n_pairs]
        rows.append(
            _accuracy_row(policies, device_hours, at[1])
            | {"n_pairs": _mean(pairs), "change": "reference" if regime == "dpo" else changed}
        )
    return _frame(rows, ABLATION_COLUMNS)


def _by_policy(
    evaluations: Evaluations, keep: Callable[[PolicyKey], bool]
) -> dict[tuple[Column, str], dict[PolicyKey, pd.DataFrame]]:
    """Evaluations by what a row of the table is, (policy without seed, benchmark); inside, by seed in order."""
    grouped: dict[tuple[Column, str], dict[PolicyKey, pd.DataFrame]] = {}
    for (key, benchmark), answers in evaluations.items():
        if keep(key):
            column = (key.model, key.regime, key.group_size, key.k)
            grouped.setdefault((column, benchmark), {})[key] = answers
    return {at: dict(sorted(by_key.items(), key=lambda item: item[0])) for at, by_key in grouped.items()}


def _grid_order(
    rows: Iterable[tuple[Column, str]], regimes: Sequence[str], k_first: bool = False
) -> list[tuple[Column, str]]:
    """Rows as the grid lists them: models and benchmarks as first met, regimes as given, then G and K."""
    rows = list(rows)
    models = list(dict.fromkeys(column[0] for column, _ in rows))
    benchmarks = list(dict.fromkeys(benchmark for _, benchmark in rows))

    def position(row: tuple[Column, str]) -> tuple[int, ...]:
        (model, regime, group_size, k), benchmark = row
        policy = (regimes.index(regime), group_size, k)
        return (models.index(model), *((k, *policy) if k_first else policy), benchmarks.index(benchmark))

    return sorted(rows, key=position)


def _accuracy_row(
    by_key: Mapping[PolicyKey, pd.DataFrame], device_hours: Mapping[PolicyKey, float], benchmark: str
) -> dict[str, Any]:
    keys = list(by_key)
    correct = _crossed(by_key, benchmark)
    per_seed = correct.mean(axis=1)
    low, high = hierarchical_bootstrap(correct)
    return {
        "model": keys[0].model,
        "policy": keys[0].label,
        "K": keys[0].k,
        "group_size": keys[0].group_size or None,
        "benchmark": benchmark,
        "n_seeds": len(keys),
        "n_problems": correct.shape[1],
        "accuracy": float(per_seed.mean()),
        "std_over_seeds": standard_deviation(per_seed),
        "ci_low": low,
        "ci_high": high,
        "device_hours": _mean([device_hours[key] for key in keys if key in device_hours]),
    }


def _crossed(by_key: Mapping[PolicyKey, pd.DataFrame], benchmark: str) -> np.ndarray:
    """Share of correct answers, (n_seeds, n_problems), with the problems in one order for all seeds."""
    shares = [answers.groupby("problem_id", sort=True)["reward"].mean() for answers in by_key.values()]
    for key, share in zip(by_key, shares, strict=True):
        if share.empty or not share.index.equals(shares[0].index):
            raise ValueError(
                f"{key.folder} on {benchmark}: answered {len(share)} problems, which are not the "
                f"{len(shares[0])} problems of {next(iter(by_key)).folder}: evaluate both on the same file"
            )
    return np.stack([share.to_numpy(dtype=float) for share in shares])


# ----------------------------------------------------------------------------------------------------------- Table 2


def harvest_table(harvests: Mapping[HarvestKey, Informativeness]) -> pd.DataFrame:
    """Table 2: the informativeness of every harvest, mean and sample standard deviation over seeds.

    Returns:
        `HARVEST_COLUMNS`, one row per (model, group_size, K). A seed in which a metric is null does not count for it;
        the metric is null where all seeds are.
    """
    groups: dict[tuple[str, int, int], list[Informativeness]] = {}
    for key in sorted(harvests, key=lambda key: key.seed):
        groups.setdefault((key.model, key.group_size, key.k), []).append(harvests[key])
    models = list(dict.fromkeys(key.model for key in harvests))
    rows = []
    for model, group_size, k in sorted(groups, key=lambda group: (models.index(group[0]), *group[1:])):
        seeds = groups[model, group_size, k]
        row: dict[str, Any] = {"model": model, "group_size": group_size or None, "K": k, "n_seeds": len(seeds)}
        for metric, attribute in HARVEST_METRICS.items():
            known = [value for seed in seeds if (value := getattr(seed, attribute)) is not None]
            row |= {metric: _mean(known), f"{metric}_std": standard_deviation(known)}
        rows.append(row)
    return _frame(rows, HARVEST_COLUMNS)


def correlation_table(harvest: pd.DataFrame, main: pd.DataFrame) -> pd.DataFrame:
    """Last row of Table 2: Pearson's r of a harvest's informativeness with the accuracy of the policy trained on it.

    A point is a harvest (K, G) of a model. Six values of K are few points: read r with its n and p-value.

    Args:
        harvest: from `harvest_table`.
        main: from `main_table`.

    Returns:
        `CORRELATION_COLUMNS`, one row per model, benchmark and metric; r and p null where not defined.
    """
    keys = ["model", "group_size", "K"]
    trained = main[main["policy"].isin(["dpo", "g2d"])][[*keys, "benchmark", "accuracy"]]
    points = trained.fillna({"group_size": 0}).merge(harvest.fillna({"group_size": 0}), on=keys)
    rows = []
    for (model, benchmark), group in points.groupby(["model", "benchmark"], sort=False):
        for metric in CORRELATED_METRICS:
            r, p, n = pearson(group[metric].to_numpy(dtype=float), group["accuracy"].to_numpy(dtype=float))
            rows.append(dict(zip(CORRELATION_COLUMNS, (model, benchmark, metric, n, r, p), strict=True)))
    return _frame(rows, CORRELATION_COLUMNS)


# ------------------------------------------------------------------------------------------------------ Table 4, cost


def calibration_table(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Table 4 of every model: the frames of `calibration.with_mixes` below each other, after a column `model`."""
    frames = [frame.assign(model=model)[["model", *frame.columns]] for model, frame in tables.items()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["model"])


def cost_table(bills: Mapping[PolicyKey, Sequence[Cost]], attempts: Sequence[Attempt] = ()) -> pd.DataFrame:
    """The bill: what each stage behind a policy cost.

    Args:
        bills: the jobs on each policy's bill, oldest first.
        attempts: all attempts at the jobs of the grid, from `read_attempts`.

    Returns:
        `COST_COLUMNS`, one row per policy (with its seed) and stage, stages in the order in which they ran. Times and
        tokens are sums over the stage's jobs, devices and the peaks (1e9 bytes; resident memory, and torch's on a GPU)
        the largest. Attempts that failed or were repeated are counted in n_lost_attempts and are in no other column
        than device_hours_with_lost_attempts. Jobs that several policies share stand in each of their bills, so sum
        within a policy, not over the column.
    """
    wasted = lost(attempts)
    rows = []
    for key, bill in bills.items():
        for stage in dict.fromkeys(record.stage for record in bill):
            jobs = [record for record in bill if record.stage == stage]
            in_vain = [attempt.cost for job in jobs for attempt in wasted.get(job.job, [])]
            rows.append(
                {
                    "model": key.model,
                    "policy": key.label,
                    "K": key.k,
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
                    "n_lost_attempts": len(in_vain),
                    "device_hours_with_lost_attempts": _device_hours([*jobs, *in_vain]),
                }
            )
    return _frame(rows, COST_COLUMNS)


def attempt_table(attempts: Sequence[Attempt]) -> pd.DataFrame:
    """What the grid really cost, beside what the results that were kept cost.

    Args:
        attempts: from `read_attempts`; every job counts once, whatever policies share it.

    Returns:
        `ATTEMPT_COLUMNS`, one row per stage, then one called "all". n_attempts counts those that are over, of which
        n_failed, n_stopped (by a signal) and n_killed (no last word) left nothing and n_repeated left something that
        was made again later. device_hours_kept is the cost of every job's last successful attempt; the columns that end
        in `_all` and the peaks are over all attempts. The start-up (interpreter, imports) is not in the wall time. A
        killed attempt counts as far as its last sign of life, at most half a minute before its end.
    """
    stages = list(dict.fromkeys(attempt.cost.stage for attempt in sorted(attempts, key=lambda a: a.started)))
    rows = []
    for stage in [*stages, "all"] if stages else []:
        own = [attempt for attempt in attempts if stage in (attempt.cost.stage, "all")]
        costs = [attempt.cost for attempt in own]
        successful = [attempt.cost for attempt in kept(own).values()]
        statuses = Counter(attempt.status for attempt in own)
        rows.append(
            {
                "stage": stage,
                "n_jobs": len({cost.job for cost in costs}),
                "n_attempts": len(own),
                **{f"n_{status}": statuses[status] for status in ENDED_BADLY},
                "n_repeated": statuses["ok"] - len(successful),
                "device_hours_kept": _device_hours(successful),
                "device_hours_all": _device_hours(costs),
                "wall_s_all": math.fsum(cost.wall_s for cost in costs),
                "cpu_s_all": math.fsum(cost.cpu_s for cost in costs),
                "start_up_s_all": math.fsum(attempt.start_up_s for attempt in own),
                "tokens_generated_all": sum(cost.tokens_generated for cost in costs),
                **_peaks(costs),
            }
        )
    return _frame(rows, ATTEMPT_COLUMNS)


def _device_hours(costs: Sequence[Cost]) -> float:
    return math.fsum(cost.device_s for cost in costs) / 3600


def _peaks(costs: Sequence[Cost]) -> dict[str, float | None]:
    """The largest memory of any job, in 1e9 bytes; on a GPU null where no job knows its own."""
    on_gpu = [cost.peak_gpu_memory_bytes for cost in costs if cost.peak_gpu_memory_bytes is not None]
    return {
        "peak_memory_gb": max(cost.peak_memory_bytes for cost in costs) / 1e9,
        "peak_gpu_memory_gb": max(on_gpu) / 1e9 if on_gpu else None,
    }


def dispute_table(rollouts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Label noise, listed: answers on which the verifier's second opinion contradicts the reward.

    Args:
        rollouts: harvests and evaluations by the name of their folder or file.

    Returns:
        `DISPUTE_COLUMNS`, one row per answer, the most frequent first; n_rollouts counts them.
    """
    frames = [frame[frame["disputed"]].assign(source=source) for source, frame in rollouts.items()]
    frames = [frame for frame in frames if not frame.empty]
    if not frames:
        return _frame([], DISPUTE_COLUMNS)
    keys = list(DISPUTE_COLUMNS[:-1])
    counted = pd.concat(frames).groupby(keys, sort=True).size().reset_index(name="n_rollouts")
    counted = counted.sort_values("n_rollouts", ascending=False, kind="stable")
    return counted[list(DISPUTE_COLUMNS)].reset_index(drop=True)


# ------------------------------------------------------------------------------------------------------------- files


def write_table(path: str | Path, table: pd.DataFrame) -> None:
    """Write CSV, nulls as empty cells, floats with six significant digits."""
    with atomic(path) as draft:
        table.to_csv(draft, index=False, float_format="%.6g", lineterminator="\n")


def read_table(path: str | Path) -> pd.DataFrame:
    """Read what `write_table` wrote, with the types the builders gave it.

    Raises:
        ValueError: the file is not CSV with these types; the message names it.
    """
    read_lines(path)
    try:
        return pd.read_csv(path, dtype=_TYPES, keep_default_na=False, na_values=[""])
    except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
        raise ValueError(f"{path}: not a readable table: {error}; delete it to have it made again") from None


def _frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=list(columns))
    return frame.astype({name: _TYPES[name] for name in columns})


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
