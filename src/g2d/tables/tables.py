"""The paper's Tables 1 to 4, their tests and decompositions, and the bill, as tidy frames built from evaluations,
harvests and cost records.

Pure builders: which files exist is the caller's knowledge, and the rows follow the order of the grid whatever order
they are handed in. Accuracies and other shares lie in 0..1; what does not apply or cannot be computed is null.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis import decomposition
from g2d.analysis.correlations import permutation_p, ranks_within, within_correlation
from g2d.analysis.informativeness import Informativeness, informative_parts
from g2d.analysis.statistics import (
    accuracy_interval,
    calibrated,
    hierarchical_bootstrap,
    percentile_interval,
    resample,
    standard_deviation,
    standard_error,
)
from g2d.experiment.grid import HarvestKey, PolicyKey
from g2d.jobs.attempts import ENDED_BADLY, Attempt, kept, lost, lost_device_s
from g2d.jobs.cost import Cost
from g2d.jobs.files import atomic, read_lines
from g2d.rollouts.budgets import at_budgets
from g2d.tables.evaluations import Evaluations, by_policy, crossed, crossed_values, grid_order, named
from g2d.tables.families import compared

ROW_COLUMNS = ("model", "policy", "K", "group_size", "benchmark")  # name a row of most tables
MAIN_COLUMNS = (
    *ROW_COLUMNS,
    "n_seeds",
    "n_problems",
    "accuracy",
    "std_over_seeds",
    "standard_error",
    "ci_low",
    "ci_high",
    "device_hours",
)
ABLATION_COLUMNS = (*MAIN_COLUMNS, "tokens", "n_pairs", "gradient_steps", "change")

EQUAL_COMPUTE_COLUMNS = (
    *ROW_COLUMNS,
    "n_seeds",
    "accuracy",
    "ci_low",
    "ci_high",
    "tokens",
    "device_hours",
    "reference_K",
    "reference_accuracy",
    "reference_tokens",
    "reference_device_hours",
    "difference",
)

CORRELATED_METRICS = ("pairability", "entropy", "mid_band")
HARVEST_METRICS = {  # column: attribute of Informativeness
    "harvest_pass_at_1": "pass_at_1",
    "pairability": "pairability",
    "n_pairs": "n_pairable",
    "entropy": "entropy",
    "mid_band": "mid_band",
    "entropy_corrected": "entropy_corrected",
    "mid_band_corrected": "mid_band_corrected",
    "format_compliance": "format_compliance",
    "truncated_share": "truncated_share",
    "n_chosen_truncated": "n_chosen_truncated",
    "n_rejected_truncated": "n_rejected_truncated",
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
    *(f"{metric}_{end}" for metric in CORRELATED_METRICS for end in ("low", "high")),
)

CORRELATION_COLUMNS = (
    "model",
    "benchmark",
    "metric",
    "pooling",
    "n",
    "pearson_r",
    "ci_low",
    "ci_high",
    "p_value",
    "permutation_p",
    "spearman_rho",
)

_POLICY = ("model", "benchmark", "policy", "K", "group_size")
COMPARISON_COLUMNS = (
    *_POLICY,
    "reference",
    "reference_K",
    "reference_group_size",
    "n_seeds",
    "n_problems",
    "difference",
    "ci_low",
    "ci_high",
    "family_size",
    "family_low",
    "family_high",
    "standard_error",
    "p_value",
    "p_holm",
    "p_questions",
    "gained",
    "lost",
    "cohens_h",
    "minimum_detectable",
)
DECOMPOSITION_COLUMNS = (
    *_POLICY,
    "n_seeds",
    "n_problems",
    "accuracy",
    "finished",
    "parseable",
    "correct",
    "gain",
    *(f"from_{factor}{end}" for factor in decomposition.FACTORS for end in ("", "_low", "_high")),
)
BUDGET_COLUMNS = (
    *_POLICY,
    "budget",
    "n_seeds",
    "n_problems",
    "accuracy",
    "ci_low",
    "ci_high",
    "finished",
    "parseable",
)

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

AUTO_COLUMNS = (
    *("model", "group_size", "seed", "step", "n_prompts", "pass_at_1"),
    *(f"{metric}{end}" for metric in CORRELATED_METRICS for end in ("", "_low", "_high")),
    *("chosen", "tokens_generated"),
)

DISPUTE_COLUMNS = ("source", "problem_id", "reference_answer", "extracted_answer", "verdict", "n_rollouts")

_TYPES: dict[Hashable, str] = {
    **dict.fromkeys(["K", "n_seeds", "n_problems", "n_jobs", "n", "tokens_generated"], "int64"),
    **dict.fromkeys(["pairable", "all_wrong", "all_correct", "devices"], "int64"),
    **dict.fromkeys(["group_size", "seed"], "Int64"),
    **dict.fromkeys(["accuracy", "std_over_seeds", "ci_low", "ci_high", "device_hours"], "float64"),
    **dict.fromkeys([*HARVEST_METRICS, *(f"{metric}_std" for metric in HARVEST_METRICS)], "float64"),
    **dict.fromkeys(["tokens", "gradient_steps", "difference"], "float64"),
    **dict.fromkeys(["reference_accuracy", "reference_tokens", "reference_device_hours"], "float64"),
    "reference_K": "int64",
    **dict.fromkeys(["pearson_r", "p_value", "wall_s", "cpu_s", "peak_memory_gb"], "float64"),
    **dict.fromkeys(["pass_at_1", "pairable_share", "all_wrong_share", "all_correct_share"], "float64"),
    **dict.fromkeys(["model", "policy", "benchmark", "metric", "stage", "regime", "device", "change"], "object"),
    **dict.fromkeys(["source", "problem_id", "reference_answer", "extracted_answer", "verdict"], "object"),
    **dict.fromkeys([f"{metric}_{end}" for metric in CORRELATED_METRICS for end in ("low", "high")], "float64"),
    **dict.fromkeys(["permutation_p", "spearman_rho"], "float64"),
    **dict.fromkeys(["pooling", "reference"], "object"),
    **dict.fromkeys(["reference_K", "budget"], "int64"),
    "reference_group_size": "Int64",
    **dict.fromkeys(COMPARISON_COLUMNS[10:], "float64"),
    "family_size": "int64",
    **dict.fromkeys(DECOMPOSITION_COLUMNS[7:], "float64"),
    **dict.fromkeys(["n_attempts", "n_failed", "n_stopped", "n_killed", "n_repeated", "n_lost_attempts"], "int64"),
    **dict.fromkeys(["device_hours_kept", "device_hours_all", "device_hours_with_lost_attempts"], "float64"),
    **dict.fromkeys(["wall_s_all", "cpu_s_all", "start_up_s_all", "peak_gpu_memory_gb"], "float64"),
    "tokens_generated_all": "int64",
    "n_rollouts": "int64",
    **dict.fromkeys(["step", "n_prompts"], "int64"),
    "chosen": "bool",
    "levels": "object",
    "selected": "bool",
}


# ------------------------------------------------------------------------------------------------------- Tables 1, 3


def main_table(evaluations: Evaluations, device_hours: Mapping[PolicyKey, float]) -> pd.DataFrame:
    """Table 1: M0, DPO, G2D by K and GRPO on every benchmark; ablations are left to `ablation_table`.

    For g2d-auto, whose warm-up stops by itself, K is the mean over seeds of the steps it took, rounded.

    Args:
        evaluations: the answers of every policy, seed and benchmark.
        device_hours: the bill of every policy; policies that have none get null.

    Returns:
        `MAIN_COLUMNS`, one row per (model, policy, K, group_size, benchmark). accuracy is the mean over samples, then
        problems, then seeds; std_over_seeds the sample standard deviation (ddof=1) of the seeds' accuracies, null for
        one seed; standard_error the plain one, s / sqrt(n) over the n problems' mean scores, these seeds given (Miller
        2024, "Adding error bars to evals", section 2); ci_low and ci_high the 95 % interval of `accuracy_interval` over
        seeds and problems; device_hours the mean over seeds.

    Raises:
        ValueError: the seeds of a policy answered different problems.
    """
    grouped = by_policy(evaluations, keep=lambda key: not key.is_ablation)
    return _frame((_accuracy_row(grouped[at], device_hours, at[1]) for at in grid_order(grouped)), MAIN_COLUMNS)


def ablation_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    descriptions: Mapping[str, Mapping[str, Any]],
    measured: Mapping[PolicyKey, Mapping[str, float | None]],
) -> pd.DataFrame:
    """Table 3: every ablation below the policy it differs from, at the same model, K and G.

    That is the dpo regime, or grpo for an ablation of the warm-up that is evaluated as it is; it is missing where the
    main grid has no such policy.

    Args:
        evaluations: as for `main_table`.
        device_hours: as for `main_table`.
        descriptions: by the regime of the ablation, the keys it changes and their values; its order is the order of
            the rows.
        measured: of every policy, the tokens generated behind it, the pairs it was trained on (n_pairs) and the
            gradient steps of its last training; what does not apply is missing or null.

    Returns:
        `ABLATION_COLUMNS`: as `main_table`, then tokens, n_pairs and gradient_steps (means over seeds) and change, for
        example "loss=ipo", or "reference".

    Raises:
        ValueError: the seeds of a policy answered different problems, or an ablation has no description.
    """
    ablated = {key.over_seeds.reference for key, _ in evaluations if key.is_ablation}

    def keep(key: PolicyKey) -> bool:
        return key.role in ("dpo", "grpo", "ablation") and key.over_seeds.reference in ablated

    grouped = by_policy(evaluations, keep)
    if unknown := sorted({policy.regime for policy, _ in grouped} - {"dpo", "grpo", *descriptions}):
        raise ValueError(f"no description of the ablation {unknown[0]!r}")
    rows = []
    for at in grid_order(grouped, regimes=("dpo", "grpo", *descriptions), k_first=True):
        regime, policies = at[0].regime, grouped[at]
        changed = ", ".join(f"{name}={value}" for name, value in descriptions.get(regime, {}).items())
        row = _accuracy_row(policies, device_hours, at[1])
        for name in ("tokens", "n_pairs", "gradient_steps"):
            known = [value for key in policies if (value := measured.get(key, {}).get(name)) is not None]
            row[name] = _mean(known)
        rows.append(row | {"change": changed if regime in descriptions else "reference"})
    return _frame(rows, ABLATION_COLUMNS)


def equal_compute_table(
    evaluations: Evaluations,
    device_hours: Mapping[PolicyKey, float],
    measured: Mapping[PolicyKey, Mapping[str, float | None]],
) -> pd.DataFrame:
    """GRPO with a changed warm-up against GRPO as it is, at equal compute: the largest K that generated no more tokens.

    Tokens and not device-hours decide, because they do not depend on how busy a machine was; both are shown. The
    reference is GRPO alone with the same group size at its largest K. Where even the smallest K of an ablation
    generated more, there is no row.

    Args:
        evaluations: as for `main_table`.
        device_hours: as for `main_table`.
        measured: as for `ablation_table`; `tokens` is read.

    Returns:
        `EQUAL_COMPUTE_COLUMNS`, one row per ablation of GRPO and benchmark; difference is accuracy minus
        reference_accuracy.

    Raises:
        ValueError: the seeds of a policy answered different problems.
    """
    grouped = by_policy(evaluations, keep=lambda key: key.kind == "grpo" and key.role != "auto")
    found: dict[tuple[str, int, str], dict[str, list[dict[str, Any]]]] = {}  # rows by K, by where they stand and regime
    for at in sorted(grouped, key=lambda at: at[0].k):
        (policy, benchmark), policies = at, grouped[at]
        row = _accuracy_row(policies, device_hours, benchmark)
        row["tokens"] = _mean([tokens for key in policies if (tokens := measured[key]["tokens"]) is not None])
        regimes = found.setdefault((policy.model, policy.group_size, benchmark), {})
        regimes.setdefault(policy.regime, []).append(row)
    rows = []
    for regimes in found.values():
        alone = regimes.pop("grpo", [])
        for own in regimes.values() if alone else []:
            reference = alone[-1]
            if affordable := [row for row in own if row["tokens"] <= reference["tokens"]]:
                best = affordable[-1]
                compared = {
                    f"reference_{name}": reference[name] for name in ("K", "accuracy", "tokens", "device_hours")
                }
                rows.append(best | compared | {"difference": best["accuracy"] - reference["accuracy"]})
    return _frame(rows, EQUAL_COMPUTE_COLUMNS)


def _accuracy_row(
    by_key: Mapping[PolicyKey, pd.DataFrame], device_hours: Mapping[PolicyKey, float], benchmark: str
) -> dict[str, Any]:
    keys = list(by_key)
    correct = crossed(by_key, benchmark)
    per_seed = correct.mean(axis=1)
    low, high = accuracy_interval(correct)
    return {
        **named(keys[0], benchmark),
        "n_seeds": len(keys),
        "n_problems": correct.shape[1],
        "accuracy": float(per_seed.mean()),
        "std_over_seeds": standard_deviation(per_seed),
        "standard_error": standard_error(correct.mean(axis=0)),
        "ci_low": low,
        "ci_high": high,
        "device_hours": _mean([device_hours[key] for key in keys if key in device_hours]),
    }


# ------------------------------------------------------------------------------- comparisons, decomposition, budgets


def comparison_table(evaluations: Evaluations) -> pd.DataFrame:
    """Every policy against what it has to beat, on the same questions; see `g2d.tables.families`.

    Returns:
        `COMPARISON_COLUMNS`, see `comparisons.Comparison`; p_holm corrects p_value over the family_size comparisons
        of which one may be picked: the values of K (and G) against one reference, or all pairs of K > 0.

    Raises:
        ValueError: two policies answered different problems, or have different seeds.
    """
    return _frame(compared(evaluations), COMPARISON_COLUMNS)


def decomposition_table(evaluations: Evaluations) -> pd.DataFrame:
    """Where each policy's gain over M0 comes from; see `g2d.analysis.decomposition`.

    Returns:
        `DECOMPOSITION_COLUMNS`, one row per (model, policy, K, group_size, benchmark), M0 first: finished, parseable
        and correct are P(finished), P(parseable | finished) and P(correct | parseable), means over seeds and problems;
        gain = accuracy - M0's = from_finishing + from_format + from_reasoning, each with its 95 % interval over seeds
        and problems. Nothing is decomposed for M0 itself or without it.

    Raises:
        ValueError: two policies answered different problems.
    """
    grouped = by_policy(evaluations, keep=lambda key: True)
    rows = []
    for at in grid_order(grouped):
        policy_key, benchmark = at
        base = grouped.get((PolicyKey(policy_key.model, "base", 0, 0, None), benchmark), {})
        own = grouped[at]
        reached = _reached({**base, **own}, benchmark)
        policy = reached[:, -len(own) :]
        shares = policy.mean(axis=(1, 2))
        finished, parseable, correct = decomposition.factors(shares)
        row = named(next(iter(own)), benchmark) | {
            "n_seeds": len(own),
            "n_problems": policy.shape[2],
            "accuracy": shares[2],
            "finished": finished,
            "parseable": parseable,
            "correct": correct,
        }
        if base and policy_key.role != "base":
            reference = np.broadcast_to(reached[:, :1], policy.shape)
            row |= _gain(reference, policy)
        rows.append(row)
    return _frame(rows, DECOMPOSITION_COLUMNS)


def _gain(reference: np.ndarray, policy: np.ndarray) -> dict[str, float]:
    """The gain and its parts with intervals; both arrays are (3 stages, n_seeds, n_problems)."""
    old, new = reference.mean(axis=(1, 2)), policy.mean(axis=(1, 2))
    resampled = [np.stack([resample(stage) for stage in side]) for side in (reference, policy)]
    spread = decomposition.contributions(*resampled)
    values = {"gain": float(new[2] - old[2])}
    parts = decomposition.contributions(old, new)
    to_first_order = decomposition.linearised(reference, policy)
    for factor, part, draws, linear in zip(decomposition.FACTORS, parts, spread, to_first_order, strict=True):
        low, high = percentile_interval(calibrated(draws, linear))
        values |= {f"from_{factor}": float(part), f"from_{factor}_low": low, f"from_{factor}_high": high}
    return values


def _reached(by_key: Mapping[PolicyKey, pd.DataFrame], benchmark: str, column: str = "verdict") -> np.ndarray:
    """Share of a problem's answers that reached each stage, (3 stages, policies, problems)."""
    reached = {key: answers.join(decomposition.stages(answers[column])) for key, answers in by_key.items()}
    values = [
        crossed_values({key: answers.assign(value=answers[stage]) for key, answers in reached.items()}, benchmark)
        for stage in decomposition.STAGES
    ]
    return np.stack(values)


def budget_table(evaluations: Evaluations) -> pd.DataFrame:
    """Accuracy at every token budget of `evaluation.token_budgets`, from one generation; see `g2d.rollouts.budgets`.

    Returns:
        `BUDGET_COLUMNS`, one row per (model, policy, K, group_size, benchmark) and budget (tokens); accuracy and its
        interval as in `main_table`, finished and parseable as in `decomposition_table`. Empty without budgets.

    Raises:
        ValueError: the seeds of a policy answered different problems or were judged at different budgets.
    """
    grouped = by_policy(evaluations, keep=lambda key: True)
    rows = []
    for at in grid_order(grouped):
        own, benchmark = grouped[at], at[1]
        verdicts = {key: at_budgets(answers) for key, answers in own.items()}
        if len({tuple(by_budget) for by_budget in verdicts.values()}) > 1:
            raise ValueError(f"{next(iter(own)).folder} on {benchmark}: its seeds were judged at different budgets")
        for budget in next(iter(verdicts.values())):
            cut = {key: answers.assign(cut=verdicts[key][budget]) for key, answers in own.items()}
            reached = _reached(cut, benchmark, "cut")
            finished, parseable, _ = decomposition.factors(reached.mean(axis=(1, 2)))
            low, high = accuracy_interval(reached[2])
            rows.append(
                named(next(iter(own)), benchmark)
                | {
                    "budget": budget,
                    "n_seeds": len(own),
                    "n_problems": reached.shape[2],
                    "accuracy": float(reached[2].mean()),
                    "ci_low": low,
                    "ci_high": high,
                    "finished": finished,
                    "parseable": parseable,
                }
            )
    return _frame(rows, BUDGET_COLUMNS)


# ----------------------------------------------------------------------------------------------------------- Table 2


def harvest_table(
    harvests: Mapping[HarvestKey, Informativeness], counts: Mapping[HarvestKey, pd.DataFrame]
) -> pd.DataFrame:
    """Table 2: the informativeness of every harvest, mean and sample standard deviation over seeds.

    Args:
        harvests: the summary of every harvest.
        counts: its `success_counts`.

    Returns:
        `HARVEST_COLUMNS`, one row per (model, group_size, K). A seed in which a metric is null does not count for it;
        the metric is null where all seeds are. The ends _low and _high of rho, H and mu bound a 95 % interval over
        seeds and prompts; the columns _corrected have less of the bias of G' rollouts (`g2d.analysis.mixing`).

    Raises:
        ValueError: the seeds of a policy harvested different prompts.
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
        keys = [HarvestKey(model, group_size, k, seed) for seed in sorted(_seeds(harvests, model, group_size, k))]
        rows.append(row | _harvest_intervals([counts[key] for key in keys], keys[0].folder))
    return _frame(rows, HARVEST_COLUMNS)


def _seeds(harvests: Iterable[HarvestKey], model: str, group_size: int, k: int) -> list[int]:
    return [key.seed for key in harvests if (key.model, key.group_size, key.k) == (model, group_size, k)]


def _harvest_intervals(counts: Sequence[pd.DataFrame], folder: str) -> dict[str, float]:
    """Intervals of rho, H and mu, which are means over seeds of ratios of sums over prompts."""
    ordered = [frame.sort_values("problem_id", kind="stable") for frame in counts]
    if any(list(frame["problem_id"]) != list(ordered[0]["problem_id"]) for frame in ordered):
        raise ValueError(f"{folder}: the seeds of this policy harvested different prompts: harvest them again")
    parts = [informative_parts(frame) for frame in ordered]
    values: dict[str, float] = {}
    for metric in CORRELATED_METRICS:
        known = [part[metric] for part in parts if part[metric][1].any()]
        low, high = math.nan, math.nan
        if known:
            numerators, denominators = (np.stack(side) for side in zip(*known, strict=True))
            low, high = hierarchical_bootstrap(numerators, denominators)
        values |= {f"{metric}_low": low, f"{metric}_high": high}
    return values


def correlation_points(harvests: Mapping[HarvestKey, Informativeness], evaluations: Evaluations) -> pd.DataFrame:
    """What Table 2 correlates: every harvest with the accuracy of the policy trained on it.

    Returns:
        One row per harvest and benchmark: model, group_size (0 for K=0), K, seed, benchmark, accuracy and
        `CORRELATED_METRICS`.
    """
    rows = []
    for (policy, benchmark), answers in evaluations.items():
        key = HarvestKey(policy.model, policy.group_size, policy.k, policy.seed if policy.seed is not None else -1)
        if policy.role == "dpo" and key in harvests:
            metrics = {metric: getattr(harvests[key], metric) for metric in CORRELATED_METRICS}
            accuracy = float(answers.groupby("problem_id")["reward"].mean().mean())
            rows.append({**asdict(key), "benchmark": benchmark, "accuracy": accuracy, **metrics})
    columns = ["model", "group_size", "k", "seed", "benchmark", "accuracy", *CORRELATED_METRICS]
    frame = pd.DataFrame(rows, columns=columns).rename(columns={"k": "K"})
    return frame.astype(dict.fromkeys(["accuracy", *CORRELATED_METRICS], "float64"))


def correlation_table(points: pd.DataFrame) -> pd.DataFrame:
    """Last row of Table 2: the correlation of a harvest's informativeness with the accuracy of the policy trained on
    it.

    Six values of K are few points: read r with its n, interval and p-values.

    Args:
        points: from `correlation_points`.

    Returns:
        `CORRELATION_COLUMNS`, one row per model, benchmark, metric and pooling; null where not defined.

        - pooling "means over seeds": a point is a (K, G), as in the paper.
        - "within seeds": a point is a (K, G) of one seed; what distinguishes seeds is removed (`within_correlation`).
        - "within seeds and models", model "all": the same over all models, each seed of each model for itself.

        p_value assumes independent points, which seeds that share their K are not; permutation_p does not, because it
        permutes the K of all seeds of a model together.
    """
    rows = []
    for (model, benchmark), group in points.groupby(["model", "benchmark"], sort=False):
        averaged = group.groupby(["group_size", "K"], as_index=False)[["accuracy", *CORRELATED_METRICS]].mean()
        rows += _correlations(averaged.assign(model=str(model), seed=0), model, benchmark, "means over seeds")
        if group["seed"].nunique() > 1:
            rows += _correlations(group, model, benchmark, "within seeds")
    if points["model"].nunique() > 1:
        for benchmark, group in points.groupby("benchmark", sort=False):
            rows += _correlations(group, "all", benchmark, "within seeds and models")
    return _frame(rows, CORRELATION_COLUMNS)


def _correlations(points: pd.DataFrame, model: Hashable, benchmark: Hashable, pooling: str) -> list[dict[str, Any]]:
    rows = []
    for metric in CORRELATED_METRICS:
        known = points.dropna(subset=[metric])
        subjects = known.groupby(["model", "seed"]).ngroup().to_numpy()
        x, y = known[metric].to_numpy(), known["accuracy"].to_numpy()
        found = within_correlation(x, y, subjects)
        ranked = within_correlation(ranks_within(x, subjects), ranks_within(y, subjects), subjects)
        rows.append(
            {
                "model": model,
                "benchmark": benchmark,
                "metric": metric,
                "pooling": pooling,
                "n": found.n,
                "pearson_r": found.r,
                "ci_low": found.low,
                "ci_high": found.high,
                "p_value": found.p,
                "permutation_p": None if found.r is None else permutation_p(known, metric, "accuracy"),
                "spearman_rho": ranked.r,
            }
        )
    return rows


def auto_table(probes: Mapping[PolicyKey, pd.DataFrame]) -> pd.DataFrame:
    """The probes of every warm-up that stopped by itself, on the way.

    Args:
        probes: by warm-up, the table that `g2d.regimes.auto_stop.Outcome` describes.

    Returns:
        `AUTO_COLUMNS`, one row per (model, group_size, seed, step): rho, H (bits) and mu of a small harvest with 95 %
        intervals over its prompts; chosen marks the policy that was harvested and trained on. H and mu are null where
        no prompt was pairable.
    """
    models = list(dict.fromkeys(key.model for key in probes))
    keys = sorted(probes, key=lambda key: (models.index(key.model), key.group_size, key.seed))
    frames = [probes[key].assign(model=key.model, group_size=key.group_size, seed=key.seed) for key in keys]
    return _frame(
        ({str(name): value for name, value in row.items()} for f in frames for row in f.to_dict("records")),
        AUTO_COLUMNS,
    )


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
    return _frame(rows, COST_COLUMNS)


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
    """Write CSV, nulls as empty cells, floats with six significant digits.

    Text (of models, problems, the configuration) that a spreadsheet would run as a formula, because it begins with =,
    +, -, @, a tab or a line break and is no plain number, gets an apostrophe before it; `unescaped` takes it away. A
    NUL, which ends a cell for many readers, becomes its picture (U+2400) for good.
    """
    inert = _map_texts(table, lambda text: ("'" if _FORMULA.match(text) else "") + text.replace("\0", "\u2400"))
    texts = inert.select_dtypes(["object", "string"])
    # Without quotes a bare \r would end its line, and the csv module leaves it without.
    broken = any("\r" in cell for name in texts for cell in texts[name] if isinstance(cell, str))
    with atomic(path) as draft:
        inert.to_csv(
            draft,
            index=False,
            float_format="%.6g",
            lineterminator="\n",
            quoting=csv.QUOTE_NONNUMERIC if broken else csv.QUOTE_MINIMAL,
        )


def read_table(path: str | Path) -> pd.DataFrame:
    """Read what `write_table` wrote, with the types the builders gave it and the texts as they were.

    Raises:
        ValueError: the file is not CSV with these types; the message names it.
    """
    read_lines(path)
    try:
        return unescaped(pd.read_csv(path, dtype=_TYPES, keep_default_na=False, na_values=[""]))
    except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
        raise ValueError(f"{path}: not a readable table: {error}; delete it to have it made again") from None


def unescaped(table: pd.DataFrame) -> pd.DataFrame:
    """A table that was read from a CSV of `write_table`, with the texts that were written."""
    return _map_texts(table, lambda text: text[1:] if text[:1] == "'" and _FORMULA.match(text) else text)


# An apostrophe that was there before gets another one, so that taking one away gives the text back.
_FORMULA = re.compile(r"'*(?![-+]?\d+(?:\.\d+)?\Z)[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def _map_texts(table: pd.DataFrame, function: Callable[[str], str]) -> pd.DataFrame:
    def apply(cell: Any) -> Any:
        return function(cell) if isinstance(cell, str) else cell

    texts = table.select_dtypes(["object", "string"])
    return table.assign(**{str(name): texts[name].map(apply) for name in texts})


def _frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=list(columns))
    return frame.astype({name: _TYPES[name] for name in columns})


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
