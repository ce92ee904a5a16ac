"""Tables of accuracy: Table 1, gains over M0 in parts, and checkpoint selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

import numpy as np
import pandas as pd

from g2d.analysis import decomposition
from g2d.analysis.comparisons import margins_behind_best
from g2d.analysis.statistics import LEVEL, error_of_difference, standard_deviation
from g2d.grid.runs import Policy
from g2d.tables.evaluations import (
    BY_BENCHMARK,
    ROW,
    Evaluations,
    Grouped,
    Paired,
    Row,
    by_grid,
    by_policy,
    clusters_of,
    crossed,
    m0_of,
    row_of,
    share,
)
from g2d.tables.frames import Rows, columns, estimate, table_of

COSTS = ("device_hours", "device_hours_without_calibration", "tokens_generated", "updates", "n_pairs")
MAIN_COLUMNS = columns(
    f"{ROW} change n_seeds n_problems n_clusters accuracy ci_low ci_high by_seed std_over_seeds",
    "behind at_least at_most",
    *COSTS,
)


@table_of(MAIN_COLUMNS)
def main_table(
    evaluations: Evaluations,
    device_hours: Mapping[Policy, float],
    calibration: Mapping[Policy, float] | None = None,
    spent: Mapping[Policy, Mapping[str, float]] | None = None,
    select_by: str | None = None,
) -> Rows:
    """Table 1: a row per policy and benchmark; K of g2d-auto is the rounded mean over seeds.

    Args:
        calibration: calibration's part of the device-hours.
        spent: tokens, updates and pairs of each policy.
        select_by: benchmark without tests.
    """
    grouped = by_policy(evaluations)
    bounds = _bounds(grouped, select_by)
    for at, by_seed in grouped.items():
        policy, benchmark = at
        correct = crossed(by_seed, benchmark)
        accuracies = correct.mean(axis=1)
        clusters = clusters_of(by_seed)
        row = row_of(by_seed, benchmark, correct)
        row["n_clusters"] = len(np.unique(clusters))
        row.update(share(correct, clusters))
        row["by_seed"] = " ".join(f"{accuracy:.4g}" for accuracy in accuracies)
        row["std_over_seeds"] = standard_deviation(accuracies)
        row.update(bounds.get(at, {}))
        row.update(_mean_costs(by_seed, device_hours, calibration or {}, spent or {}))
        if policy.run.changes:
            row["change"] = ", ".join(f"{name}={value}" for name, value in policy.run.changes.items())
        yield row


def _bounds(grouped: Grouped, select_by: str | None) -> dict[Row, dict[str, float]]:
    """Return how far each K of DPO on a harvest is behind the best other K, with bounds; nothing without another K, or
    while some of their seeds are missing."""
    bounds: dict[Row, dict[str, float]] = {}
    for (_, benchmark), rows in by_grid(at for at in grouped if at[0].role == "dpo").items():
        if benchmark == select_by or len(rows) == 1:
            continue
        seeds_of_rows: set[tuple[int | None, ...]] = set()
        for at in rows:
            seeds_of_rows.add(tuple(policy.seed for policy in grouped[at]))
        if len(seeds_of_rows) > 1:
            continue
        answers = Paired(grouped, rows)
        margins = margins_behind_best(list(answers.correct.values()), answers.clusters)
        for at, margin in zip(rows, margins, strict=True):
            bounds[at] = asdict(margin)
    return bounds


def _mean_costs(
    policies: Iterable[Policy],
    device_hours: Mapping[Policy, float],
    calibration: Mapping[Policy, float],
    spent: Mapping[Policy, Mapping[str, float]],
) -> dict[str, float]:
    costs = []
    for policy in policies:
        cost = dict(spent.get(policy, {}))
        if policy in device_hours:
            hours = device_hours[policy]
            cost["device_hours"] = hours
            cost["device_hours_without_calibration"] = hours - calibration.get(policy, 0.0)
        costs.append(cost)
    means = pd.DataFrame(costs, columns=COSTS, dtype=float).mean()
    return dict(zip(COSTS, means, strict=True))


DECOMPOSITION_COLUMNS = columns(
    BY_BENCHMARK,
    "n_seeds n_problems accuracy finished parseable correct gain",
    *(f"from_{factor} from_{factor}_low from_{factor}_high" for factor in decomposition.FACTORS),
)


@table_of(DECOMPOSITION_COLUMNS)
def decomposition_table(evaluations: Evaluations) -> Rows:
    """A row per policy and benchmark: its gain over M0 in parts (`g2d.analysis.decomposition`), null without M0."""
    grouped = by_policy(evaluations)
    for at, by_seed in grouped.items():
        base = grouped.get(m0_of(at), {})
        reached = _reached(base | by_seed, at[1])
        policy = reached[:, -len(by_seed) :]
        shares = policy.mean(axis=(1, 2))
        finished, parseable, correct = decomposition.factors(shares)
        row = row_of(by_seed, at[1], policy[2])
        row["accuracy"] = shares[2]
        row["finished"] = finished
        row["parseable"] = parseable
        row["correct"] = correct
        if base and at[0].role != "base":
            reference = np.broadcast_to(reached[:, :1], policy.shape)
            row.update(_gain(reference, policy, clusters_of(by_seed)))
        yield row


def _gain(reference: np.ndarray, policy: np.ndarray, clusters: np.ndarray) -> dict[str, float | None]:
    """Return the gain and its parts with intervals, from (3 stages, n_seeds, n_problems) each."""
    old = reference.mean(axis=(1, 2))
    new = policy.mean(axis=(1, 2))
    values: dict[str, float | None] = {"gain": float(new[2] - old[2])}
    parts = decomposition.contributions(old, new)
    to_first_order = decomposition.linearised(reference, policy)
    for factor, part, linear in zip(decomposition.FACTORS, parts, to_first_order, strict=True):
        interval = error_of_difference(linear, clusters).interval(LEVEL)
        values |= estimate(f"from_{factor}", float(part), interval)
    return values


def _reached(answers: Mapping[Policy, pd.DataFrame], benchmark: str) -> np.ndarray:
    """Return shares of a problem's answers, (3 stages, policies, problems)."""
    reached: dict[Policy, pd.DataFrame] = {}
    for policy, rows in answers.items():
        reached[policy] = rows.join(decomposition.stages(rows["verdict"]))
    return np.stack([crossed(reached, benchmark, stage) for stage in decomposition.STAGES])


SELECTION_COLUMNS = columns("model policy group_size seed K n_checkpoints selected_accuracy benchmark accuracy")


@table_of(SELECTION_COLUMNS)
def selection_table(evaluations: Evaluations, select_by: str) -> Rows:
    """A row per run with several K and other benchmark: the chosen K, and its accuracy on both benchmarks.

    The most accurate K on `select_by` is chosen, of equal ones the smallest (arXiv 2506.21495, section 3.1).
    """
    accuracies = {at: float(answers["reward"].mean()) for at, answers in evaluations.items()}
    benchmarks = dict.fromkeys(benchmark for _, benchmark in evaluations)
    for policies in _runs(evaluations):
        if len(policies) == 1:
            continue
        chosen = max(policies, key=lambda policy: (accuracies[policy, select_by], -policy.k))
        for benchmark in benchmarks:
            if benchmark == select_by:
                continue
            yield {
                "model": chosen.model,
                "policy": chosen.run_name,
                "group_size": policies[0].group_size,
                "seed": chosen.seed,
                "K": chosen.k,
                "n_checkpoints": len(policies),
                "selected_accuracy": accuracies[chosen, select_by],
                "benchmark": benchmark,
                "accuracy": accuracies[chosen, benchmark],
            }


def _runs(evaluations: Evaluations) -> list[list[Policy]]:
    """Return the policies of each run, K > 0 first. DPO on the harvest of M0 (K=0) belongs to the runs of every G."""
    runs: dict[tuple[str, str, int, int | None], list[Policy]] = {}
    at_zero = []
    for policy in dict.fromkeys(policy for policy, _ in evaluations):
        if policy.k:
            runs.setdefault((policy.model, policy.run_name, policy.group_size, policy.seed), []).append(policy)
        elif policy.role != "base":
            at_zero.append(policy)
    for policy in at_zero:
        for (model, run_name, _, seed), policies in runs.items():
            if (model, run_name, seed) == (policy.model, policy.run_name, policy.seed):
                policies.append(policy)
    return list(runs.values())
