"""The checkpoint that a benchmark would have chosen, by hand."""

from __future__ import annotations

import pytest

from g2d.checks.load import load
from g2d.grid.runs import Policy, Run
from g2d.settings import ConfigError
from g2d.tables.accuracy import selection_table
from tests.configs import MINIMAL
from tests.frames import solved
from tests.main_policies import main_policy


def test_the_most_accurate_k_is_chosen_of_equal_ones_the_smallest() -> None:
    base = Policy("m")
    dpo = [main_policy("m", "dpo", 2 if k else 0, k, seed) for seed in (0, 1) for k in (0, 5, 10)]
    entry = Run("s10", "semi_online_dpo", "entry")
    online = [Policy("m", entry, 8, k, 0) for k in (20, 40)]
    alone = Policy("m", Run("once", "semi_online_dpo", "entry"), 8, 20, 0)
    picked = dict(zip([base, *dpo, *online, alone], [3, 1, 2, 2, 3, 1, 1, 0, 4, 4], strict=True))
    tested = dict(zip([base, *dpo, *online, alone], [0, 1, 2, 3, 4, 3, 2, 1, 0, 4], strict=True))
    answers = {(key, "picks"): solved(n) for key, n in picked.items()}
    answers |= {(key, "tested"): solved(n) for key, n in tested.items()}
    table = selection_table(answers, "picks")
    n = len(solved(0))
    rows = [(row.policy, row.group_size, row.seed, row.K, row.n_checkpoints) for row in table.itertuples()]
    assert rows == [("dpo", 2, 0, 5, 3), ("dpo", 2, 1, 0, 3), ("s10", 8, 0, 40, 2)]
    assert list(table.selected_accuracy) == pytest.approx([2 / n, 3 / n, 4 / n])
    assert list(table.benchmark) == ["tested"] * 3
    assert list(table.accuracy) == pytest.approx([2 / n, 4 / n, 0])


def test_one_benchmark_selects_and_another_is_left_to_compare_on() -> None:
    (name, source), picks = next(iter(MINIMAL["benchmarks"].items())), {"split": "development", "select_by": True}
    config = load(MINIMAL | {"benchmarks": {name: source, "picks": source | picks}})
    assert (config.select_by, config.tested_benchmarks) == ("picks", [name])
    more = {"picks": source | picks, "again": source | picks | {"seed": 1}}
    for benchmarks, message in (
        ({name: source, **more}, "benchmarks.again.select_by: picks already selects"),
        ({"picks": source | picks}, "benchmarks.picks.select_by: no other benchmark is left"),
    ):
        with pytest.raises(ConfigError, match=message):
            load(MINIMAL | {"benchmarks": benchmarks})
    with pytest.raises(ConfigError, match=r"pool\.select_by: only a benchmark selects"):
        load(MINIMAL | {"pool": MINIMAL["pool"] | {"select_by": True}})
