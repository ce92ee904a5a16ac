"""Sentences on power and synthesis, from tables with known numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from g2d.report.power import difference_by_seeds, power_sentences
from g2d.report.synthesis import forest, synthesis_sentences
from g2d.tables.frames import frame, read_table, write_table
from g2d.tables.power import power_table, variance_table
from g2d.tables.synthesis import OVER_MODELS, STUDY, SYNTHESIS_COLUMNS, synthesis_table
from tests.analysis.test_synthesis import evaluations
from tests.tables.test_tables import BASE, policy


@pytest.fixture(scope="module")
def grid() -> dict:
    return evaluations(1, 3, gain=0.2)


def test_power_in_words_and_as_a_chart(grid: dict) -> None:
    power, variance = power_table(grid, 0.02), variance_table(grid)
    paragraphs = power_sentences(power, variance)
    assert len(paragraphs) == 3
    assert paragraphs[0].startswith("b0: with 2 seeds and 300 problems the tests find ")
    here = power[power["this_grid"]].iloc[0]
    ends = f"{100 * here['difference_low']:.1f} to {100 * here['difference_high']:.1f} points"
    assert f"the tests find differences of {ends} against K=0 with 80 % probability (corrected for 2; " in paragraphs[0]
    assert here["difference_low"] < here["difference"] < here["difference_high"]
    for sd, words in ((0.01, "Seeds differ by 1.0 points"), (0.0, "no more than single answers explain by chance")):
        assert words in power_sentences(power, variance.assign(seed_sd=sd))[0]
    assert "Twice the" in paragraphs[0]
    drawn = str(difference_by_seeds(power[power["benchmark"] == "b0"]))
    assert "as measured" in drawn
    assert "seeds differ by 0.5 points" in drawn


def test_one_seed_is_about_these_weights(grid: dict) -> None:
    one = {(key, name): rows for (key, name), rows in grid.items() if key.seed in (None, 0)}
    power, variance = power_table(one, 0.02), variance_table(one)
    paragraph = power_sentences(power, variance)[0]
    assert "with 1 seed and 300 problems between these weights" in paragraph
    assert "Twice the" not in paragraph
    assert variance["from_seeds"].isna().all()
    assert power["difference"].isna().all()


def test_the_synthesis_in_words_and_as_a_picture(grid: dict) -> None:
    table = synthesis_table(grid)
    (sentence,) = synthesis_sentences(table)
    assert sentence.startswith("In these 3 studies (3 benchmarks), K=")
    assert "the largest of 2 mean differences" in sentence
    assert "95 % prediction interval" in sentence
    rows = next(iter(table.groupby(["reference", "policy", "K"])))[1]
    drawn = pd.DataFrame(forest(rows)["datasets"].values()).stack().map(lambda row: row.get("name"))
    assert {"m0, b0", "m0, b2", "all: 3 benchmarks"} <= set(drawn)


@pytest.mark.parametrize(
    ("p", "verdict"), [(0.02, "of some K differs significantly"), (0.03, "of any K does not differ")]
)
def test_the_best_k_of_every_model_is_named_with_the_test_of_differences(p: float, verdict: str) -> None:
    """Corrected for two K: p = .02 counts as .04."""
    study = {"reference": "DPO at K=0", "policy": "g2d", "over": STUDY}
    differences = {"small": {25: 0.02, 75: 0.01}, "middle": {25: 0.0, 75: 0.03}, "large": {25: 0.01, 75: 0.05}}
    rows = [
        study | {"model": model, "benchmark": benchmark, "K": k, "difference": difference + shift}
        for benchmark, shift in (("a", 0.1), ("b", -0.1))
        for model, by_k in differences.items()
        for k, difference in by_k.items()
    ]
    pooled = study | {"over": OVER_MODELS, "n_studies": 3, "tau": 0.0, "p_mean": 0.5, "mean": 0.01}
    ends = dict.fromkeys(("mean_low", "prediction_low"), -0.1) | dict.fromkeys(("mean_high", "prediction_high"), 0.1)
    rows += [pooled | ends | {"K": k, "p_heterogeneity": p_of_k} for k, p_of_k in ((25, 0.5), (75, p))]
    *_, sentence = synthesis_sentences(frame(rows, SYNTHESIS_COLUMNS | {"n_studies": "float64"}))
    assert "is at small K=25, middle K=75, large K=75." in sentence
    assert verdict in sentence


def test_the_picture_of_a_synthesis_that_was_read_back_is_json(grid: dict, tmp_path: Path) -> None:
    """Rows pooled over benchmarks have no benchmark: the empty cell becomes NaN, which is no JSON."""
    write_table(tmp_path / "synthesis.csv", synthesis_table(grid))
    table = read_table(tmp_path / "synthesis.csv", SYNTHESIS_COLUMNS)
    for _, rows in table.groupby(["reference", "policy", "K"]):
        json.dumps(forest(rows), allow_nan=False)


def test_an_unstable_policy_is_left_out_of_the_measured_variance() -> None:
    """Of three K and one whose seeds solve 10, 50 and 90 % of the problems."""
    answered = {(BASE, "b"): right(np.arange(200) < 60)}
    shares = {0: [0.5, 0.51, 0.5], 50: [0.5, 0.52, 0.53], 100: [0.55, 0.55, 0.54], 200: [0.1, 0.5, 0.9]}
    for k, by_seed in shares.items():
        for seed, share in enumerate(by_seed):
            answered[policy("dpo", k, seed), "b"] = right(np.arange(200) < 200 * share)
    stable = {at: rows for at, rows in answered.items() if at[0].k < 200}
    sds = [variance_table(each)["seed_sd"].item() for each in (answered, stable)]
    assert sds[0] == sds[1] < 0.02
    assert set(power_table(answered, 0.02)["family_size"]) == {3}  # its tests still count


def right(answers: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"problem_id": np.arange(len(answers)), "reward": answers.astype(float)})
