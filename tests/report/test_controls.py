"""The sentence on controls: shares of a gain, with their tests."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from g2d.report.summary import control_sentences, panels
from g2d.tables.controls import CONTROL_COLUMNS
from tests.report.test_answer import BASE, GRPO, main

ROW: dict[str, Any] = {
    **{"model": "m", "policy": "on-coin/dpo", "K": 150, "group_size": 2, "benchmark": "b", "truth": "g2d"},
    **{"reward": "random rewards (p = 0.5)", "n_seeds": 3, "n_problems": 500, "rewarded": 0.5, "right": 0.4},
    **{"accuracy": 0.45, "base_accuracy": 0.4, "truth_accuracy": 0.6, "family_size": 2},
    **{"gain": 0.05, "gain_low": 0.01, "gain_high": 0.09, "p_gain": 0.02},
    **{"truth_gain": 0.2, "truth_gain_low": 0.15, "truth_gain_high": 0.25, "p_truth": 1e-6},
    **{"share": 0.25, "share_low": 0.05, "share_high": 0.44},
    **{"difference": 0.15, "difference_low": 0.1, "difference_high": 0.2, "p_value": 0.001, "p_holm": 0.002},
}


def table(*changes: dict[str, Any]) -> pd.DataFrame:
    rows = [ROW | change for change in changes]
    return pd.DataFrame(rows, columns=list(CONTROL_COLUMNS)).astype({"group_size": "Int64"})


def test_every_control_of_a_policy_stands_in_one_sentence() -> None:
    (sentence,) = control_sentences(table({}, {"reward": "rewards for the format alone", "gain": -0.01}))
    assert sentence.startswith(
        "Controls: of the +20.0 points [+15.0, +25.0] that G2D (K=150) gains over M0, random rewards"
    )
    assert (
        "random rewards (p = 0.5) get +5.0 [+1.0, +9.0] (25\u00a0% [5, 44], different from the truth by a paired"
        in sentence
    )
    assert "test, p = 0.002: +15.0 points [+10.0, +20.0])" in sentence
    assert "; rewards for the format alone get −1.0" in sentence


def test_the_most_accurate_policy_has_the_sentence() -> None:
    rows = table({}, {"K": 50, "truth_accuracy": 0.62}, {"K": 100, "truth_accuracy": 0.62})
    (sentence,) = control_sentences(rows)
    assert "that G2D (K=50) gains over M0" in sentence  # the first of equals
    assert sentence.count("random rewards") == 1


def test_no_significant_difference_is_not_called_equality() -> None:
    (sentence,) = control_sentences(table({"p_holm": 0.3, "difference_low": -0.01}))
    assert (
        "not significantly different from the truth by a paired test, p = 0.3: +15.0 points [−1.0, +20.0]" in sentence
    )


def test_without_a_gain_no_share_is_shown() -> None:
    nothing = {"p_truth": 0.4, "share": None, "share_low": None, "share_high": None}
    (sentence,) = control_sentences(table(nothing))
    assert "is not significantly different from 0 (p = 0.4), so no shares are shown" in sentence
    assert "%" not in sentence


def test_with_one_seed_it_is_about_these_weights() -> None:
    for change in ({}, {"p_truth": 0.4, "share": None}):
        (sentence,) = control_sentences(table(change | {"n_seeds": 1}))
        assert " over M0 with these weights, " in sentence


def test_an_interval_without_an_end_says_so() -> None:
    (sentence,) = control_sentences(table({"share": -0.1, "share_high": None, "share_low": -0.2}))
    assert "(−10\u00a0% [−20, no upper end]" in sentence


@pytest.mark.parametrize(("truth", "k", "name"), [("grpo", 1000, "GRPO (K=1000, G=2)"), ("s1", 20, "s1 (K=20)")])
def test_the_policy_is_called_by_its_name(truth: str, k: int, name: str) -> None:
    (sentence,) = control_sentences(table({"truth": truth, "K": k}))
    assert f"that {name} gains over M0" in sentence


def test_they_follow_the_answer_of_their_model_and_benchmark() -> None:
    rows = main(BASE, ("dpo", 0, 0.5, 2.0), ("g2d", 150, 0.6, 4.0), GRPO).assign(device_hours_without_calibration=1.0)
    tables = {
        "main": pd.concat([rows, rows.assign(model="other"), rows.assign(benchmark="c")]),
        "controls": table({}, {"benchmark": "c"}),
    }
    shown = [panel["answer"] for panel in panels(tables, ["b"], {}, {}, {})]
    assert [(answer.model, answer.benchmark) for answer in shown] == [("m", "b"), ("other", "b")]
    controlled, others = (answer.details for answer in shown)
    assert controlled[:-1] == others
    assert controlled[-1].count("random rewards") == 1
