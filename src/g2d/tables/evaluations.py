"""Answers grouped into rows of tables: policies over their seeds, as arrays of seeds and problems, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import Comparison, compare
from g2d.analysis.statistics import accuracy_interval
from g2d.grid.runs import ROLES, Policy
from g2d.tables.frames import interval

Evaluations = Mapping[tuple[Policy, str], pd.DataFrame]  # (policy, benchmark): rows as in `Rollout`
Row = tuple[Policy, str]  # a policy over its seeds (`Policy.over_seeds`), on a benchmark
Grouped = Mapping[Row, Mapping[Policy, pd.DataFrame]]  # answers by seed

# Columns that identify a row of most tables (`named`), in two orders.
ROW = "model policy K group_size benchmark"
BY_BENCHMARK = "model benchmark policy K group_size"


# Tables compare policies over their seeds. So answers are grouped by row (a policy without its seed, and a benchmark),
# and each group becomes an array of seeds and problems. A comparison uses the seeds that both sides have; other
# problems are an error. M0 has no seed: its one row of answers is compared with every seed.


def by_policy(
    evaluations: Evaluations, keep: Callable[[Policy], bool] = lambda policy: True
) -> dict[Row, dict[Policy, pd.DataFrame]]:
    """Group the answers of the policies to keep by row, in `grid_order`, and inside by ascending seed."""
    grouped: dict[Row, dict[Policy, pd.DataFrame]] = {}
    for (policy, benchmark), answers in evaluations.items():
        if keep(policy):
            grouped.setdefault((policy.over_seeds, benchmark), {})[policy] = answers
    ordered: dict[Row, dict[Policy, pd.DataFrame]] = {}
    for at in grid_order(grouped):
        ordered[at] = dict(sorted(grouped[at].items(), key=lambda item: item[0].seed or 0))
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
    policy = next(iter(seeds))
    return {
        "model": policy.model,
        "policy": policy.label,
        "K": policy.shown_k,
        "group_size": policy.group_size or None,
        "benchmark": benchmark,
    }


def row_of(seeds: Iterable[Policy], benchmark: str, values: np.ndarray) -> dict[str, object]:
    """Return the cells of `named` and the shape of the policy's values, (n_seeds, n_problems)."""
    return named(seeds, benchmark) | {"n_seeds": values.shape[0], "n_problems": values.shape[1]}


def share(values: np.ndarray, clusters: np.ndarray, name: str = "accuracy") -> dict[str, float | None]:
    """Return the cells of a share of right answers, (n_seeds, n_problems), and of its 95 % interval."""
    return {name: float(values.mean(axis=1).mean())} | interval("ci", accuracy_interval(values, clusters))


def m0_of(at: Row) -> Row:
    return Policy(at[0].model), at[1]


def crossed(answers: Mapping[Policy, pd.DataFrame], benchmark: str, column: str = "reward") -> np.ndarray:
    """Return the mean of a column by seed and problem, (n_seeds, n_problems), problems in one order for all seeds.

    Raises:
        ValueError: the policies answered different problems.
    """
    means: list[pd.Series] = []
    for policy, rows in answers.items():
        values = rows.groupby("problem_id", sort=True)[column].mean()
        means.append(values)
        if values.empty or not values.index.equals(means[0].index):
            raise ValueError(
                f"{policy.folder} on {benchmark}: answered {len(values)} problems, which are not the "
                f"{len(means[0])} problems of {next(iter(answers)).folder}: evaluate both on the same file"
            )
    return np.stack(means).astype(float)


def clusters_of(answers: Mapping[Policy, pd.DataFrame]) -> np.ndarray:
    """Return the cluster of each problem, in the order of `crossed`."""
    rows = next(iter(answers.values()))
    return rows.groupby("problem_id", sort=True)["cluster"].first().to_numpy()


class Paired:
    """Answers of rows to the problems of one benchmark, (n_seeds, n_problems) each."""

    def __init__(self, grouped: Grouped, rows: Sequence[Row]) -> None:
        benchmark = rows[0][1]
        answers: dict[Policy, pd.DataFrame] = {}
        for at in rows:
            answers.update(grouped[at])
        correct = crossed(answers, benchmark)
        self.seeds: dict[Row, list[int | None]] = {}
        self.correct: dict[Row, np.ndarray] = {}
        self.clusters = clusters_of(answers)
        start = 0
        for at in rows:
            end = start + len(grouped[at])
            self.seeds[at] = [policy.seed for policy in grouped[at]]
            self.correct[at] = correct[start:end]
            start = end

    def shared_seeds(self, at: Row, reference: Row) -> list[int | None]:
        others = self.seeds[reference]
        if others == [None]:
            return self.seeds[at]
        return [seed for seed in self.seeds[at] if seed in others]

    def pair(self, at: Row, reference: Row) -> tuple[np.ndarray, np.ndarray]:
        """Return both answers over the shared seeds, (n_seeds, n_problems) each, (1, n_problems) for M0; ValueError if
        no seed is shared."""
        seeds = self.shared_seeds(at, reference)
        if not seeds:
            first = replace(at[0], seed=self.seeds[at][0])
            second = replace(reference[0], seed=self.seeds[reference][0])
            raise ValueError(
                f"{first.folder} and {second.folder} have no seed in common: policies are compared seed by seed"
            )
        return self._correct_of_seeds(at, seeds), self._correct_of_seeds(reference, seeds)

    def compared(self, pairs: Iterable[tuple[Row, Row]], family: int = 1) -> list[Comparison]:
        comparisons = []
        for at, reference in pairs:
            policy, other = self.pair(at, reference)
            comparisons.append(compare(policy, other, family, self.clusters))
        return comparisons

    def _correct_of_seeds(self, row: Row, seeds: Sequence[int | None]) -> np.ndarray:
        if self.seeds[row] == [None]:
            return self.correct[row]
        positions = [self.seeds[row].index(seed) for seed in seeds]
        return self.correct[row][positions]
