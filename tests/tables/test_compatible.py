"""A p-value and the interval beside it never disagree: the law of every table that has both."""

from __future__ import annotations

from collections.abc import Iterator

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
    *(main_policy("m", "dpo", 2 if k else 0, k, 0) for k in (0, 20, 50)),
    main_policy("m", "grpo", 2, 50, 0),
    *(Policy("m", Run(f"{reward}/grpo", "grpo", "ablation"), 2, 50, 0) for reward in ("coin", "format")),
    *(Policy("m", Run(name, "rft", "entry"), 0, 0, 0) for name in ("rft", "chosen")),
]
GRIDS = range(20)


def grid(number: int, n: int = N) -> dict[tuple[Policy, str], pd.DataFrame]:
    """Policies that differ by about as much as a test finds; one to ten seeds."""
    rng = np.random.default_rng(number)
    n_seeds = (1, 2, 4, 10)[number % 4]
    settled, answers = rng.random(n) < 0.5, {}
    for policy in [M0, *POLICIES]:
        better, shape = rng.uniform(0, 0.25) * (policy != M0), (1 if policy == M0 else n_seeds, n)
        afresh = np.where(rng.random(shape) < 0.1, rng.random(shape) < 0.5, settled)
        answers[policy] = afresh | (rng.random(shape) < better)
    return evaluated(answers)


def replies(number: int) -> dict[Policy, pd.DataFrame]:
    rng = np.random.default_rng(number)
    return {
        policy: drawn(rng, np.full(40, rng.uniform(0, 0.6) * (policy != M0)), 5 * rng.random(), bias=0.02)
        for policy in [M0, *POLICIES]
    }


def tables(number: int) -> Iterator[tuple[str, pd.DataFrame, list[tuple[str, str, float]]]]:
    """Yield every table with its p-values: column, prefix of the columns of the interval, and null hypothesis."""
    evaluations = grid(number)
    yield "comparisons", comparison_table(evaluations), [("p_value", "ci", 0)]
    if number >= 4:  # enough for the slow tables
        return
    won = win_rate_table(replies(number))
    yield "win_rates", won, [("p_win", "win", 0.5), ("p_equal_length", "equal_length", 0.5)]


def test_a_p_value_and_its_interval_never_disagree() -> None:
    disagreeing, cells, significant = [], {}, {}
    for name, table, columns in (table for number in GRIDS for table in tables(number)):
        for p, interval, null in columns:
            low, high = table[f"{interval}_low"].fillna(-np.inf), table[f"{interval}_high"].fillna(np.inf)
            outside = (low >= null) | (high <= null)
            tested = table[p].notna()
            at = f"{name}: {p}"
            disagreeing += [at] * int((outside != (table[p] <= LEVEL))[tested].sum())
            cells[at] = cells.get(at, 0) + int(tested.sum())
            significant[at] = significant.get(at, 0) + int((table[p] <= LEVEL).sum())
    assert not disagreeing
    assert min(cells.values()) >= 10
    assert min(significant.values()) > 1  # there is something to disagree about


def test_a_pair_of_policies_has_one_test() -> None:
    table = comparison_table(grid(1))
    sides = [("policy", "K", "group_size"), ("reference", "reference_K", "reference_group_size")]
    names = [table[list(side)].astype(str).to_numpy() for side in sides]
    pairs = [frozenset(map(tuple, both)) for both in zip(*names, strict=True)]
    assert len(set(pairs)) == len(pairs) >= 20
