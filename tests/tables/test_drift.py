"""drift.csv by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from g2d.experiment.keys import PolicyKey
from g2d.tables.drift import drift_table

M0 = PolicyKey("m", "base", 0, 0, None)
OTHER = PolicyKey("other", "dpo", 0, 0, 0)  # whose M0 was not evaluated


def answers(tokens: list[int], right: int) -> pd.DataFrame:
    n = len(tokens)
    return pd.DataFrame({"problem_id": range(n), "token_count": tokens, "reward": [float(i < right) for i in range(n)]})


def test_length_and_accuracy_are_less_those_of_m0() -> None:
    grid = {
        (M0, "b"): answers([10, 20, 30, 40], 1),
        (PolicyKey("m", "dpo", 2, 50, 0), "b"): answers([12, 24, 30, 48], 2),
        (PolicyKey("m", "dpo", 2, 50, 1), "b"): answers([10, 26, 32, 44], 4),
        (OTHER, "b"): answers([1, 2, 3, 4], 4),
    }
    base, policy, other = drift_table(grid).to_dict("records")
    assert (base["length"], base["accuracy"]) == (25, 0.25)
    assert pd.isna([base["longer"], base["gain"], other["longer"], other["gain"]]).all()
    assert (policy["length"], policy["longer"], policy["accuracy"], policy["gain"]) == (28.25, 3.25, 0.75, 0.5)
    assert policy["longer_low"] < 3.25 < policy["longer_high"]
    assert (policy["n_seeds"], policy["n_problems"], other["length"]) == (2, 4, 2.5)


def test_every_answer_longer_by_as_much_has_an_interval_without_width() -> None:
    grid = {(M0, "b"): answers([10, 20, 30], 1), (PolicyKey("m", "dpo", 2, 50, 0), "b"): answers([15, 25, 35], 1)}
    row = drift_table(grid).to_dict("records")[1]
    assert (row["longer_low"], row["longer"], row["longer_high"]) == pytest.approx((5, 5, 5))
