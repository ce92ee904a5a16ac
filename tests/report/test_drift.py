"""The chart of gain against divergence, and the sentence on online training."""

from __future__ import annotations

import pytest

from g2d.experiment.config import read
from g2d.report.drift import equal_gain_sentences, gain_by_divergence
from g2d.report.styles import series_styles
from g2d.tables.drift import EQUAL_GAIN_COLUMNS
from g2d.tables.frames import frame
from tests.experiment.test_config import CONFIG
from tests.report.test_answer import main
from tests.report.test_charts import rows

KNOWN = series_styles(read(CONFIG / "config.yaml"))


def test_every_policy_stands_at_its_divergence_and_gain() -> None:
    table = main(("base", 0, 0.3, 0.0), ("dpo", 0, 0.5, 1.0), ("grpo", 20, 0.4, 3.0))
    assert gain_by_divergence(table, KNOWN) is None
    measured = table.assign(
        kl=[float("nan"), 8.0, 0.5], kl_low=[float("nan"), 7.0, 0.0], kl_high=[float("nan"), 9.0, 1.0]
    )
    assert gain_by_divergence(measured[1:], KNOWN) is None  # without M0 there is no gain
    spec = gain_by_divergence(measured, KNOWN)
    assert spec is not None
    shown = {(row["kl"], round(row["gain"], 6)) for row in rows(spec)}
    assert shown == {(8.0, 0.2), (0.5, 0.1)}
    assert [row["kl_low"] for row in rows(spec) if row["kl_low"] > 0].count(7.0) >= 1


@pytest.mark.parametrize(
    ("status", "ratio", "p", "part"),
    [
        (
            "compared",
            0.5,
            0.01,
            "easy: at equal gain, policies trained online are closer to M0: the KL divergence from M0 of",
        ),
        ("compared", 2.0, 0.01, "easy: at equal gain, policies trained online are further from M0: "),
        ("compared", 0.5, 0.06, "easy: at equal gain, no significant difference: "),
        ("no common gain", None, None, "because their gains do not overlap."),
        ("too few policies", None, None, "because there are too few of them."),
    ],
)
def test_the_sentence_has_its_test(status: str, ratio: float | None, p: float | None, part: str) -> None:
    row = {"model": "demo", "benchmark": "easy", "status": status, "n_online": 3, "n_others": 4, "n_seeds": 2}
    row |= {"ratio": ratio, "ratio_low": ratio, "ratio_high": ratio, "p_value": p}
    [sentence] = equal_gain_sentences(frame([row], EQUAL_GAIN_COLUMNS))
    assert part in sentence
    if status == "compared":
        assert f"is {ratio:.2g} times that of the 4 trained on harvests" in sentence


def test_models_are_named_where_there_are_several() -> None:
    row = {"benchmark": "easy", "status": "too few policies", "n_online": 0, "n_others": 1, "n_seeds": 1}
    both = equal_gain_sentences(frame([row | {"model": name} for name in ("a", "b")], EQUAL_GAIN_COLUMNS))
    assert [sentence.split(":")[0] for sentence in both] == ["a, easy", "b, easy"]
