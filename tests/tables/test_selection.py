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
    online = Run("s10", "semi_online_dpo", "entry")
    alone = Run("once", "semi_online_dpo", "entry")
    right = [  # policy, and how many of 4 answers are right on the benchmark that selects and on another
        (Policy("m"), 3, 0),
        (main_policy("m", "dpo", 0, 0, 0), 1, 1),
        (main_policy("m", "dpo", 2, 5, 0), 2, 2),
        (main_policy("m", "dpo", 2, 10, 0), 2, 3),
        (main_policy("m", "dpo", 0, 0, 1), 3, 4),
        (main_policy("m", "dpo", 2, 5, 1), 1, 3),
        (main_policy("m", "dpo", 2, 10, 1), 1, 2),
        (Policy("m", online, 8, 20, 0), 0, 1),
        (Policy("m", online, 8, 40, 0), 4, 0),
        (Policy("m", alone, 8, 20, 0), 4, 4),
    ]
    answers = {}
    for policy, picked, tested in right:
        answers[policy, "picks"] = solved(picked)
        answers[policy, "tested"] = solved(tested)
    table = selection_table(answers, "picks")
    columns = ["policy", "group_size", "seed", "K", "n_checkpoints", "selected_accuracy", "benchmark", "accuracy"]
    assert table[columns].to_numpy().tolist() == [
        ["dpo", 2, 0, 5, 3, 0.5, "tested", 0.5],
        ["dpo", 2, 1, 0, 3, 0.75, "tested", 1.0],
        ["s10", 8, 0, 40, 2, 1.0, "tested", 0.0],
    ]


def test_one_benchmark_selects_and_another_is_left_to_compare_on() -> None:
    source = MINIMAL["benchmarks"]["held-out"]
    picks = source | {"split": "development", "select_by": True}
    config = load(MINIMAL | {"benchmarks": {"held-out": source, "picks": picks}})
    assert (config.select_by, config.tested_benchmarks) == ("picks", ["held-out"])
    levels = {"held-out": source | {"levels": [1]}, "picks": source | {"levels": [2], "select_by": True}}
    assert load(MINIMAL | {"benchmarks": levels}).select_by == "picks"
    again = {"held-out": source, "picks": picks, "again": picks | {"seed": 1}}
    for benchmarks, message in (
        (again, "benchmarks.again.select_by: picks already selects"),
        ({"held-out": source, "picks": picks | {"split": "test", "seed": 1}}, "benchmarks.picks.split: it selects"),
        ({"picks": picks}, "benchmarks.picks.select_by: no other benchmark is left"),
    ):
        with pytest.raises(ConfigError, match=message):
            load(MINIMAL | {"benchmarks": benchmarks})
    with pytest.raises(ConfigError, match=r"pool\.select_by: only a benchmark selects"):
        load(MINIMAL | {"pool": MINIMAL["pool"] | {"select_by": True}})
