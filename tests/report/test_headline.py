"""The headline: verdicts on K=0, each supported by a test or a bound."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from g2d.report.answer import answer
from g2d.tables.accuracy import main_table
from tests.main_policies import main_policy
from tests.report.rows import BASE, GRPO, answered, comparison, comparisons, main

NONE = ("dpo", 0, 0.73, 2.0)
SOME = ("g2d", 25, 0.74, 3.0)
MORE = ("g2d", 50, 0.81, 4.0)
AGAINST_M0 = comparisons(comparison(("dpo", 0), ("base", 0), 0.001))
MARGIN = 0.05
Bounds = Mapping[int, float | tuple[float, float]]


def headline(*rows: tuple[str, int, float, float], bounds: Bounds | None = None, n_seeds: int = 3) -> str:
    table = main(BASE, *rows, n_seeds=n_seeds, half_width=0.04, bounds=bounds)
    return answered(table, MARGIN, AGAINST_M0).headline.replace("\u00a0", " ")


def test_k_0_that_is_shown_to_be_within_the_margin_was_enough() -> None:
    assert headline(NONE, SOME, bounds={0: 0.0481, 25: 0.06}) == (
        "K=0 was enough on b (greedy answers, margin 5 points): 73 % [69, 77], at most 4.9 points worse than the best "
        "K (95 %)."
    )
    assert "73 % [69, 77], better than any other K (95 %)." in headline(NONE, SOME, bounds={0: 0.0, 25: 0.06})
    assert headline(NONE, SOME, bounds={0: 0.04, 25: 0.06}, n_seeds=1).startswith("With these weights, K=0 was enough")


def test_k_0_that_is_shown_to_be_behind_was_worse_and_by_the_margin_not_enough() -> None:
    bounds = {0: (0.0259, 0.12), 25: (0.01, 0.08), 50: 0.0}
    assert headline(NONE, SOME, MORE, bounds=bounds) == (
        "K=0 was worse than the best K on b (greedy answers, margin 5 points): 73 %, at least 2.5 points worse than "
        "the best K (95 %); the best is K=50 (81 %), not K=25 (74 %)."
    )
    assert headline(NONE, SOME, MORE, bounds=bounds | {0: (0.05, 0.12), 25: 0.03}).endswith(
        "K=0 was not enough on b (greedy answers, margin 5 points): 73 %, at least 5.0 points worse than the best K "
        "(95 %); the best is K=25 (74 %) or K=50 (81 %); K=25 was enough, at most 3.0 points worse."
    )


def test_an_open_answer_names_the_k_that_may_be_the_best() -> None:
    """K=0 and K=5 of SmolLM2; an earlier page did not say that K=15 and K=40 were excluded."""
    rows = [("dpo", 0, 0.75, 1.0), ("g2d", 5, 0.78, 2.0), ("g2d", 15, 0.58, 3.0), ("g2d", 40, 0.47, 4.0)]
    bounds = {0: 0.168, 5: 0.11, 15: (0.04, 0.3), 40: (0.1, 0.5)}
    assert headline(*rows, GRPO, bounds=bounds, n_seeds=5) == (
        "Whether K=0 was enough is open on b (greedy answers, margin 5 points): the best is K=0 (75 %) or K=5 (78 %), "
        "not K=15 (58 %) or K=40 (47 %); K=0 is at most 16.8 points worse than the best K (95 %). "
        "GRPO alone (G=2, K=1000): 50 %."
    )
    assert headline(NONE, SOME, MORE, bounds={0: 0.08, 25: 0.07, 50: 0.01}) == (
        "Whether K=0 was enough is open on b (greedy answers, margin 5 points): any K may be the best: K=0 (73 %), "
        "K=25 (74 %) or K=50 (81 %); K=0 is at most 8.0 points worse than the best K (95 %)."
    )


def test_while_seeds_are_missing_the_answer_is_open() -> None:
    assert headline(NONE, SOME) == (
        "Whether K=0 was enough is open on b (greedy answers, margin 5 points): K=0 (73 %) and K=25 (74 %)."
    )


@pytest.mark.parametrize(
    ("at_least", "at_most", "start"),
    [
        (0.0, 0.05, "K=0 was enough on b"),
        (0.03, 0.05, "K=0 was enough on b"),
        (0.0, 0.0501, "Whether K=0 was enough is open on b"),
        (0.0001, 0.0501, "K=0 was worse than the best K on b"),
        (0.0499, 0.11, "K=0 was worse than the best K on b"),
        (0.05, 0.11, "K=0 was not enough on b"),
    ],
)
def test_borders_of_the_verdicts(at_least: float, at_most: float, start: str) -> None:
    assert headline(NONE, MORE, bounds={0: (at_least, at_most), 50: 0.0}).startswith(start)


def test_if_nothing_is_better_than_m0_no_k_is_said_to_be_enough() -> None:
    tests = comparisons(
        comparison(("dpo", 0), ("base", 0), 0.3),
        comparison(("g2d", 25), ("base", 0), 0.2),
        comparison(("g2d", 25), ("dpo", 0), 0.01),
    )
    shown = answered(main(BASE, NONE, SOME, half_width=0.04, bounds={0: (0.01, 0.02), 25: 0.0}), MARGIN, tests)
    assert shown.headline.replace("\u00a0", " ") == (
        "No training is shown to help on b (greedy answers): M0 40 % [36, 44], K=0 73 %, K=25 74 % (corrected for "
        "2 comparisons with M0)."
    )
    assert "enough" not in " ".join(shown.sentences)


def test_dpo_that_is_not_better_than_m0_is_not_said_to_be_enough_if_something_else_helps() -> None:
    """DPO made M0 worse, or changed nothing; GRPO and an ablation helped."""
    rows = (("dpo", 0, 0.38, 2.0), ("g2d", 25, 0.38, 3.0), GRPO)
    tests = comparisons(
        comparison(("dpo", 0), ("base", 0), 0.001) | {"difference": -0.02},
        comparison(("g2d", 25), ("base", 0), 0.5),
        comparison(("grpo", 1000), ("base", 0), 0.001),
        comparison(("long", 25), ("base", 0), 0.001),
    )
    shown = answered(main(BASE, *rows, half_width=0.04, bounds={0: 0.01, 25: 0.01}), MARGIN, tests)
    assert shown.headline.replace("\u00a0", " ") == (
        "DPO is at no K shown to help on b (greedy answers): M0 40 % [36, 44], K=0 38 %, K=25 38 % (corrected for 2 "
        "comparisons with M0). Better than M0 (corrected for 4 comparisons with M0): GRPO (K=1000, G=2) (+2.0 points) "
        "and long (K=25, G=2) (+2.0 points)."
    )
    assert "enough" not in " ".join(shown.sentences)


def test_an_ablation_more_does_not_turn_the_answer() -> None:
    helps = comparison(("dpo", 0), ("base", 0), 0.02)
    others = [comparison((f"ablation{n}", 25), ("base", 0), 0.9) for n in range(9)]
    table = main(BASE, NONE, SOME, bounds={0: 0.01, 25: 0.01})
    shown = answered(table, MARGIN, comparisons(helps, comparison(("g2d", 25), ("base", 0), 0.9), *others))
    assert shown.headline.startswith("K=0 was enough")


@pytest.mark.parametrize("row", [("dpo", 0, 0.28, 2.0), ("g2d", 100, 0.3, 3.0)])
def test_with_one_k_that_does_not_help_the_headline_says_so(row: tuple[str, int, float, float]) -> None:
    tests = comparisons(comparison(row[:2], ("base", 0), 0.001) | {"difference": -0.1})
    shown = answered(main(BASE, row), MARGIN, tests).headline
    assert shown.startswith("No training is shown to help on b")
    assert "M0 40" in shown


def test_with_one_k() -> None:
    assert (
        headline(NONE) == "DPO without online RL (K=0) reached 73 % [69, 77] on b (greedy answers); no other K was run."
    )
    assert headline(SOME) == "K=25 did best on b (greedy answers), 74 % [70, 78]; K=0, without online RL, was not run."


@pytest.mark.parametrize(
    ("true_lead", "false"),
    [(0.0, "K=0 was worse"), (0.03, "K=0 was not enough"), (0.05, "K=0 was enough"), (0.06, "K=0 was enough")],
)
def test_a_false_verdict_comes_in_at_most_one_grid_in_twenty(true_lead: float, false: str) -> None:
    """K=5 leads K=0 and K=10, with three seeds that scatter by a point and a margin of 5 points."""
    rng = np.random.default_rng(3)
    runs = 120
    said = 0
    for _ in range(runs):
        difficulty = rng.normal(0, 0.2, 300)
        evaluations = {}
        for policy, k, accuracy in (("dpo", 0, 0.6), ("dpo", 5, 0.6 + true_lead), ("dpo", 10, 0.6)):
            shift = rng.normal(0, 0.05, 300)
            for seed in range(3):
                chance = accuracy + difficulty - difficulty.mean() + shift - shift.mean() + rng.normal(0, 0.01)
                right = (rng.random(300) < chance).astype(float)
                key = main_policy("m", policy, 2 if k else 0, k, seed)
                evaluations[key, "b"] = pd.DataFrame(
                    {"problem_id": np.arange(300), "cluster": np.arange(300), "reward": right}
                )
        table = main_table(evaluations, {}).drop(columns="change")
        shown = answer(table, "m", "b", "greedy answers", 0.05)
        said += shown.headline.startswith(false)
    assert binomtest(said, runs, 0.05, alternative="greater").pvalue > 0.001
