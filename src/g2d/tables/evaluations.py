"""Answers grouped into rows of tables: policies over their seeds, as arrays of seeds and problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from g2d.analysis.statistics import accuracy_interval
from g2d.grid.runs import ROLES, Policy
from g2d.tables.frames import interval

Evaluations = Mapping[tuple[Policy, str], pd.DataFrame]  # (policy, benchmark): rows as in `Rollout`
Row = tuple[Policy, str]  # a policy over its seeds (`Policy.over_seeds`), on a benchmark
Grouped = Mapping[Row, Mapping[Policy, pd.DataFrame]]  # answers by seed

# Columns that identify a row of most tables (`named`), in two orders.
ROW = "model policy K group_size benchmark"
BY_BENCHMARK = "model benchmark policy K group_size"


def by_policy(
    evaluations: Evaluations, keep: Callable[[Policy], bool] = lambda key: True
) -> dict[Row, dict[Policy, pd.DataFrame]]:
    """Group the answers of the policies to keep by row, in `grid_order`, and inside by ascending seed."""
    grouped: dict[Row, dict[Policy, pd.DataFrame]] = {}
    for (key, benchmark), answers in evaluations.items():
        if keep(key):
            grouped.setdefault((key.over_seeds, benchmark), {})[key] = answers
    ordered: dict[Row, dict[Policy, pd.DataFrame]] = {}
    for at in grid_order(grouped):
        by_seed = sorted(grouped[at], key=lambda policy: policy.seed or 0)
        ordered[at] = {policy: grouped[at][policy] for policy in by_seed}
    return ordered


def grid_order(rows: Iterable[Row], runs: Sequence[str] = (), k_first: bool = False) -> list[Row]:
    """Sort rows by model, run, G, K and benchmark; with `k_first` by K before the run.

    Models and benchmarks keep their order of appearance; runs are as listed, or by role and appearance.
    """
    rows = list(rows)
    models = list(dict.fromkeys(policy.model for policy, _ in rows))
    benchmarks = list(dict.fromkeys(benchmark for _, benchmark in rows))
    by_role = sorted(rows, key=lambda row: ROLES.index(row[0].role))
    names = runs or list(dict.fromkeys(policy.run_name for policy, _ in by_role))

    def position(row: Row) -> tuple[int, ...]:
        policy, benchmark = row
        place = (names.index(policy.run_name), policy.group_size, policy.k)
        if k_first:
            place = (policy.k, names.index(policy.run_name), policy.group_size)
        return (models.index(policy.model), *place, benchmarks.index(benchmark))

    return sorted(rows, key=position)


def by_grid(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    grids: dict[tuple[str, str], list[Row]] = {}
    for at in grid_order(rows):
        grids.setdefault((at[0].model, at[1]), []).append(at)
    return grids


def named(seeds: Iterable[Policy], benchmark: str) -> dict[str, object]:
    key = next(iter(seeds))
    return {
        "model": key.model,
        "policy": key.label,
        "K": key.shown_k,
        "group_size": key.group_size or None,
        "benchmark": benchmark,
    }


def row_of(seeds: Iterable[Policy], benchmark: str, values: np.ndarray) -> dict[str, object]:
    """Return the cells of `named` and the shape of the policy's values, (n_seeds, n_problems)."""
    return named(seeds, benchmark) | {"n_seeds": values.shape[0], "n_problems": values.shape[1]}


def share(values: np.ndarray, name: str = "accuracy") -> dict[str, float | None]:
    """Return the cells of a share of right answers, (n_seeds, n_problems), and of its 95 % interval."""
    return {name: float(values.mean(axis=1).mean())} | interval("ci", accuracy_interval(values))


def m0_of(at: Row) -> Row:
    return Policy(at[0].model), at[1]


def crossed(by_key: Mapping[Policy, pd.DataFrame], benchmark: str, column: str = "reward") -> np.ndarray:
    """Return the mean of a column by seed and problem, (n_seeds, n_problems), problems in one order for all seeds.

    Raises:
        ValueError: the policies answered different problems.
    """
    means = [answers.groupby("problem_id", sort=True)[column].mean() for answers in by_key.values()]
    for key, values in zip(by_key, means, strict=True):
        if values.empty or not values.index.equals(means[0].index):
            raise ValueError(
                f"{key.folder} on {benchmark}: answered {len(values)} problems, which are not the "
                f"{len(means[0])} problems of {next(iter(by_key)).folder}: evaluate both on the same file"
            )
    return np.stack([values.to_numpy(dtype=float) for values in means])
