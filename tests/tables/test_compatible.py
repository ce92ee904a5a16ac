"""A p-value and the interval beside it never disagree: the law of every table that has both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pandas as pd

from g2d.analysis.statistics import LEVEL
from g2d.grid.runs import Policy, Run
from g2d.tables.families import comparison_table
from g2d.tables.win_rates import win_rate_table
from tests.frames import evaluated
from tests.main_policies import main_policy
from tests.tables.test_win_rates import drawn

N = 150
M0 = Policy("m")
POLICIES = [
    main_policy("m", "dpo", 0, 0, 0),
    main_policy("m", "dpo", 2, 20, 0),
    main_policy("m", "dpo", 2, 50, 0),
    main_policy("m", "grpo", 2, 50, 0),
    Policy("m", Run("coin/grpo", "grpo", "ablation"), 2, 50, 0),
    Policy("m", Run("format/grpo", "grpo", "ablation"), 2, 50, 0),
    Policy("m", Run("rft", "rft", "entry"), 0, 0, 0),
    Policy("m", Run("chosen", "rft", "entry"), 0, 0, 0),
]
GRIDS = range(20)


def grid(number: int, n: int = N) -> dict[tuple[Policy, str], pd.DataFrame]:
    """Policies that differ by about as much as a test finds; one to ten seeds."""
    rng = np.random.default_rng(number)
    n_seeds = (1, 2, 4, 10)[number % 4]
    settled = rng.random(n) < 0.5
    answers = {}
    for policy in [M0, *POLICIES]:
        better = rng.uniform(0, 0.25) * (policy != M0)
        shape = (1 if policy == M0 else n_seeds, n)
        afresh = np.where(rng.random(shape) < 0.1, rng.random(shape) < 0.5, settled)
        answers[policy] = afresh | (rng.random(shape) < better)
    return evaluated(answers)


def replies(number: int) -> dict[Policy, pd.DataFrame]:
    rng = np.random.default_rng(number)
    of_policy = {}
    for policy in [M0, *POLICIES]:
        taste = np.full(40, rng.uniform(0, 0.6) * (policy != M0))
        of_policy[policy] = drawn(rng, taste, 5 * rng.random(), bias=0.02)
    return of_policy


def tables(number: int) -> Iterator[tuple[str, pd.DataFrame, list[tuple[str, str, float]]]]:
    """Yield every table with its p-values: column, prefix of the columns of the interval, and null hypothesis."""
    evaluations = grid(number)
    yield "comparisons", comparison_table(evaluations), [("p_value", "ci", 0)]
    if number >= 4:  # enough for the slow tables
        return
    won = win_rate_table(replies(number))
    yield "win_rates", won, [("p_win", "win", 0.5), ("p_equal_length", "equal_length", 0.5)]


def test_a_p_value_and_its_interval_never_disagree() -> None:
    n_cells: Counter[str] = Counter()
    n_significant: Counter[str] = Counter()
    for name, table, columns in chain.from_iterable(map(tables, GRIDS)):
        for p, interval, null in columns:
            tested = table[table[p].notna()]
            low = tested[f"{interval}_low"].fillna(-np.inf)
            high = tested[f"{interval}_high"].fillna(np.inf)
            significant = tested[p] <= LEVEL
            assert (((low >= null) | (high <= null)) == significant).all(), f"{name}: {p}"
            n_cells[f"{name}: {p}"] += len(tested)
            n_significant[f"{name}: {p}"] += significant.sum()
    assert min(n_cells.values()) >= 10
    assert min(n_significant.values()) > 1  # there is something to disagree about


def test_a_pair_of_policies_has_one_test() -> None:
    table = comparison_table(grid(1))
    policies = table[["policy", "K", "group_size"]].astype(str).agg(" ".join, axis=1)
    references = table[["reference", "reference_K", "reference_group_size"]].astype(str).agg(" ".join, axis=1)
    pairs = [*map(frozenset, zip(policies, references, strict=True))]
    assert len(set(pairs)) == len(pairs) >= 20
