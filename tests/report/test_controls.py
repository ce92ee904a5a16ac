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


NBSP = "\u00a0"


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            [{}, {"reward": "rewards for the format alone", "gain": -0.01}],
            [
                "of the +20.0 points [+15.0, +25.0] that G2D (K=150) gains over M0, random rewards (p = 0.5) get +5.0 "
                f"[+1.0, +9.0] (25{NBSP}% [5, 44], different from the truth by a paired test, p = 0.002: +15.0 points "
                "[+10.0, +20.0])",
                "; rewards for the format alone get −1.0",
            ],
        ),
        # The most accurate policy, the first of equals.
        ([{}, {"K": 50, "truth_accuracy": 0.62}, {"K": 100, "truth_accuracy": 0.62}], ["that G2D (K=50) gains over"]),
        (
            [{"p_holm": 0.3, "difference_low": -0.01}],
            ["not significantly different from the truth by a paired test, p = 0.3: +15.0 points [−1.0, +20.0]"],
        ),
        (
            [{"p_truth": 0.4, "share": None, "share_low": None, "share_high": None}],
            ["is not significantly different from 0 (p = 0.4), so no shares are shown"],
        ),
        ([{"n_seeds": 1}], [" over M0 with these weights, "]),
        ([{"n_seeds": 1, "p_truth": 0.4, "share": None}], [" over M0 with these weights, "]),
        ([{"share": -0.1, "share_high": None, "share_low": -0.2}], [f"(−10{NBSP}% [−20, no upper end]"]),
        ([{"truth": "grpo", "K": 1000}], ["that GRPO (K=1000, G=2) gains over M0"]),
        ([{"truth": "s1", "K": 20}], ["that s1 (K=20) gains over M0"]),
    ],
)
def test_controls_have_shares_of_the_gain_and_tests(changes: list[dict[str, Any]], parts: list[str]) -> None:
    (sentence,) = control_sentences(table(*changes))
    assert [part for part in parts if part not in sentence] == []
    assert sentence.count("random rewards") == 1
    assert ("%" in sentence) == (changes[0].get("share", 0) is not None)


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
