"""drift.csv and equal_gain.csv by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from g2d.experiment.arms import Arm
from g2d.experiment.keys import PolicyKey
from g2d.tables.drift import DRIFT_COLUMNS, EQUAL_GAIN_COLUMNS, KL_COLUMNS, drift_table, equal_gain_table

M0 = PolicyKey("m", "base", 0, 0, None)
OTHER = PolicyKey("other", "dpo", 0, 0, 0)  # its M0 was not evaluated


def answers(tokens: list[int], right: int) -> pd.DataFrame:
    n = len(tokens)
    return pd.DataFrame({"problem_id": range(n), "token_count": tokens, "reward": [float(i < right) for i in range(n)]})


def test_length_and_accuracy_are_differences_from_m0() -> None:
    grid = {
        (M0, "b"): answers([10, 20, 30, 40], 1),
        (PolicyKey("m", "dpo", 2, 50, 0), "b"): answers([12, 24, 30, 48], 2),
        (PolicyKey("m", "dpo", 2, 50, 1), "b"): answers([10, 26, 32, 44], 4),
        (OTHER, "b"): answers([1, 2, 3, 4], 4),
    }
    base, policy, other = drift_table(grid, {}).to_dict("records")
    assert (base["length"], base["accuracy"]) == (25, 0.25)
    assert pd.isna([base["longer"], other["longer"]]).all()
    assert (policy["length"], policy["longer"], policy["accuracy"]) == (28.25, 3.25, 0.75)
    assert policy["longer_low"] < 3.25 < policy["longer_high"]
    assert (policy["n_seeds"], policy["n_problems"], other["length"]) == (2, 4, 2.5)


def drawn(kl: list[float]) -> pd.DataFrame:
    """Two answers to every problem, as far apart as they may be."""
    rows = [(f"p{i}", sample, value * 2 * sample) for i, value in enumerate(kl) for sample in (0, 1)]
    return pd.DataFrame(rows, columns=["problem_id", "sample", "kl"])


def test_the_divergence_is_a_mean_over_samples_problems_and_seeds() -> None:
    keys = [PolicyKey("m", "dpo", 2, 50, seed) for seed in (0, 1)]
    grid = {(key, "b"): answers([1, 2], 1) for key in (M0, *keys)}
    without = drift_table(grid, {})
    table = drift_table(grid, {(keys[0], "b"): drawn([1.0, 2.0]), (keys[1], "b"): drawn([3.0, 6.0])})
    assert list(without.columns) == [*DRIFT_COLUMNS]
    assert list(table.columns) == [*DRIFT_COLUMNS, *KL_COLUMNS]
    base, policy = table.to_dict("records")
    assert pd.isna(base["kl"])
    assert policy["kl"] == 3.0
    assert policy["kl_low"] < 3 < policy["kl_high"]


def test_online_policies_are_compared_with_others_at_equal_gain() -> None:
    """log KL = 10 gain + log 1/2 for those trained online, of two seeds and 20 problems."""
    online = [PolicyKey("m", "grpo", 2, k, seed) for k in (2, 4, 6) for seed in (0, 1)]
    others = [PolicyKey("m", "dpo", 2, k, seed) for k in (0, 2, 4) for seed in (0, 1)]
    best = Arm("best/selected", "grpo", "ablation", selected=True)
    copied = [PolicyKey.of("m", best, (2, 2), seed) for seed in (0, 1)]
    grid, drifted = {(M0, "b"): answers([1] * 20, 0)}, {}
    for key in [*online, *others, *copied]:
        right = 2 + key.k
        grid[key, "b"] = answers([1] * 20, right)
        kl = math.exp(10 * right / 20) * (0.5 if key.kind == "grpo" else 1) * (100 if key.arm.selected else 1)
        drifted[key, "b"] = drawn([kl] * 20)
    table = equal_gain_table(grid, drifted)
    assert list(table.columns) == [*EQUAL_GAIN_COLUMNS]
    [row] = table.to_dict("records")
    assert (row["n_online"], row["n_others"], row["n_seeds"], row["status"]) == (3, 3, 2, "compared")
    assert row["ratio"] == pytest.approx(0.5)
    assert row["ratio_low"] < 0.5 < row["ratio_high"]  # gains are of 20 problems
