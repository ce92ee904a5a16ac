"""saturation.csv: trainings with a fitted curve, and the sentences of the page about them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from g2d.experiment.arms import Arm
from g2d.experiment.keys import MAIN, PolicyKey
from g2d.graph.catalogue import TRAINING, section_of
from g2d.report.page import _SECTION_SENTENCES
from g2d.report.training import saturation_sentences
from g2d.tables.dynamics import saturation_table
from g2d.tables.frames import write_table
from g2d.tables.results import read_by_name
from tests.analysis.test_saturation import STEPS, curve, grid
from tests.frames import evaluated

M0 = PolicyKey("m", "base", 0, 0, None)


def evaluations(accuracies: list[float], **of: Any) -> dict[tuple[PolicyKey, str], pd.DataFrame]:
    """M0 and one policy at every K, two seeds."""
    before, *answers = grid(np.random.default_rng(0), accuracies, n_seeds=2)
    arm = Arm(**{"name": "grpo", "regime": "grpo", "role": "curve"} | of)
    by_k = {PolicyKey.of("m", arm, (2, k), 0): both for k, both in zip(STEPS, answers, strict=True)}
    return evaluated({M0: before} | by_k)


def test_a_row_has_the_curve_and_the_page_a_sentence() -> None:
    answers = evaluations(curve(0.7, 60, 2))
    [row] = saturation_table(answers).to_dict("records")
    assert {name: row[name] for name in ("policy", "group_size", "n_seeds", "n_steps", "last_K", "status")} == {
        **{"policy": "grpo", "group_size": 2, "n_seeds": 2, "n_steps": 5, "last_K": 400, "status": "fits"}
    }
    assert row["asymptote_low"] < 0.7 < row["asymptote_high"]
    assert row["midpoint_low"] < row["midpoint"] < row["midpoint_high"]
    assert row["nearly"] == pytest.approx(row["midpoint"] * 9 ** (1 / row["slope"]))
    [sentence] = saturation_sentences(pd.DataFrame([row | {"slope_high": math.nan, "nearly_high": math.nan}]))
    top, low, high = (f"{100 * row['asymptote' + end]:.1f}" for end in ("", "_low", "_high"))
    assert f"asymptote of {top}\u00a0% [{low}, {high}]" in sentence
    assert f"after {row['nearly']:.0f} [{row['nearly_low']:.0f}, ?]" in sentence


def test_curves_without_a_fit_have_no_numbers(tmp_path: Path) -> None:
    table = saturation_table(evaluations([0.5] * 6))
    [row] = table.to_dict("records")
    assert row["status"] == "no change"
    assert table.filter(regex="asymptote|midpoint|slope|nearly").isna().all(axis=None)
    sentences, name = _SECTION_SENTENCES[TRAINING]
    assert section_of(name) == TRAINING
    write_table(tmp_path / f"{name}.csv", table)
    [sentence] = sentences(read_by_name(tmp_path / f"{name}.csv"))
    assert sentence.startswith("GRPO, G=2 on b: no sigmoid is shown")


@pytest.mark.parametrize(
    ("of", "without", "rows"),
    [
        ({"name": "online", "regime": "semi_online_dpo", "role": "entry"}, None, 1),
        ({"name": "hot/grpo", "role": "ablation"}, None, 1),
        ({"variant": "auto"}, None, 0),
        ({"start": (MAIN["grpo"], (2, 50))}, None, 0),
        ({"name": "dpo", "regime": "dpo", "role": "dpo"}, None, 0),
        ({}, {"k": 25}, 1),  # four are left
        ({}, {"k": 25, "seed": 1}, 0),  # a K without some seed
    ],
    ids=str,
)
def test_which_trainings_have_a_curve(of: dict[str, Any], without: dict[str, int] | None, rows: int) -> None:
    answers = {
        (key, benchmark): frame
        for (key, benchmark), frame in evaluations(curve(0.7, 60, 2), **of).items()
        if not without or any(getattr(key, name) != value for name, value in without.items())
    }
    assert len(saturation_table(answers)) == rows
    assert saturation_table({at: frame for at, frame in answers.items() if at[0] == M0}).empty
