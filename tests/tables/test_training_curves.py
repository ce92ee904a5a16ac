"""Curves of online trainings, compared with values by hand: measures by regime, stages, and staleness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from g2d.analysis.training_steps import MEASURES, RATIO_BOUND, binned, steps_of
from g2d.report.charts import course
from g2d.report.sentences import percent
from g2d.report.summary import mismatch_caveats
from g2d.tables.captions import FILE
from g2d.tables.trainings import training_table
from tests.main_policies import main_policy

GRPO = {"reward": 0.5, "entropy": 0.4, "completions/mean_length": 20.0, "frac_reward_zero_std": 0.25, "kl": 0.01}


def grpo(n: int, **changes: list[float]) -> list[dict[str, Any]]:
    steps = pd.DataFrame([GRPO] * n)
    steps["step"] = np.arange(1, n + 1)
    steps["num_tokens"] = 100.0 * steps["step"]
    return steps.assign(**changes).to_dict("records")


def test_a_step_of_grpo() -> None:
    consumed = pd.DataFrame({"step": [1, 1, 2, 2], "generated_at": [1, 1, 1, 2]})
    steps = steps_of(grpo(2), consumed)
    expected = {"tokens": 200.0, "reward": 0.5, "entropy": 0.4, "length": 20.0, "no_signal": 0.25, "distance": 0.01}
    assert steps.loc[2].dropna().to_dict() == expected | {"staleness": 0.5}
    assert steps["staleness"].to_list() == [0.0, 0.5]


def test_a_generation_that_serves_several_steps_counts_its_tokens_once() -> None:
    rows = [{"step": 1, "num_tokens": 300.0, "entropy": 0.4}, {"step": 2, "entropy": 0.3}]
    assert steps_of(rows)["tokens"].to_list() == [300.0, 300.0]


def test_for_dpo_signal_is_a_pair_and_distance_a_log_ratio() -> None:
    row = {"step": 1, "num_tokens": 9.0, "pairable": 0.75, "rewards/chosen": 0.3, "rewards/rejected": -0.1}
    steps = steps_of([row], beta=0.1)
    assert steps.loc[1, "no_signal"] == 0.25
    assert steps.loc[1, "distance"] == pytest.approx(1.0)  # (0.3 - 0.1) / (2 x 0.1)


@pytest.mark.parametrize(("n", "bins", "last"), [(4, 2, [2, 4]), (5, 2, [3, 5]), (3, 20, [1, 2, 3])])
def test_stretches_are_equally_long_and_end_where_they_end(n: int, bins: int, last: list[int]) -> None:
    course = binned(steps_of(grpo(n)), bins)
    assert course["step"].to_list() == last
    assert course["tokens"].to_list() == (100.0 * np.array(last)).tolist()


@pytest.fixture
def training() -> pd.DataFrame:
    """The table of two seeds; the entropy of one falls in its second half."""
    falling = steps_of(grpo(20, entropy=[0.4] * 10 + [0.01] * 10))
    steady = steps_of(grpo(20))
    return training_table({main_policy("m", "grpo", 2, 20, 0): falling, main_policy("m", "grpo", 2, 20, 1): steady})


def test_the_table_has_the_measures_that_were_logged(training: pd.DataFrame) -> None:
    assert set(training["measure"]) == set(MEASURES) - {"clipped", "ratio", "capped", "staleness"}


def test_the_table_has_the_mean_over_seeds_at_each_step(training: pd.DataFrame) -> None:
    entropy = training[training["measure"] == "entropy"]
    assert (training["n_seeds"] == 2).all()
    assert entropy["step"].to_list() == list(range(1, 21))
    assert entropy["value"].to_list() == pytest.approx([0.4] * 10 + [0.205] * 10)


def test_the_table_has_the_lowest_and_highest_seed_at_each_step(training: pd.DataFrame) -> None:
    entropy = training[training["measure"] == "entropy"]
    assert entropy["value_low"].to_list() == pytest.approx([0.4] * 10 + [0.01] * 10)
    assert entropy["value_high"].to_list() == pytest.approx([0.4] * 20)


def test_the_figure_is_over_tokens(training: pd.DataFrame) -> None:
    entropy = training[training["measure"] == "entropy"]
    [drawn] = course(entropy, {})["datasets"].values()
    assert [row["tokens"] for row in drawn] == entropy["tokens"].to_list()


RATIO = "sampling/importance_sampling_ratio/mean"
CAPPED = "sampling/capped"


@pytest.mark.parametrize(("ratio", "warned"), [(0.85, True), (0.95, False), (1.05, False), (1.15, True)])
def test_a_mean_ratio_off_1_is_a_caveat(ratio: float, warned: bool) -> None:
    values = [ratio - 0.2, ratio + 0.2] * 10
    logs = {main_policy("m", "grpo", 2, 20, 0): steps_of(grpo(20, **{RATIO: values, CAPPED: [0.25, 0.75] * 10}))}
    table = training_table(logs)
    assert table[table["measure"] == "capped"]["value"].to_list() == [0.25, 0.75] * 10
    caveats = mismatch_caveats(table)
    assert len(caveats) == warned
    expected = f"ratio is {ratio:.2f} on average, off 1 by more than 0.1; {percent(0.5, 0)} of the ratios were outside"
    assert (expected in " ".join(caveats)) == warned


def test_a_training_of_before_has_a_ratio_and_no_count() -> None:
    table = training_table({main_policy("m", "grpo", 2, 20, 0): steps_of(grpo(20, **{RATIO: [0.5] * 20}))})
    [sentence] = mismatch_caveats(table)
    assert sentence.endswith("their ratio is 0.50 on average, off 1 by more than 0.1.")
    caption = yaml.safe_load(FILE.read_text())["training"]["definitions"]["ratio"]
    assert f"off 1 by more than {RATIO_BOUND:g}." in caption
