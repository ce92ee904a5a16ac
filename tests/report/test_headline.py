"""The headline: verdicts on K=0, each supported by a test or a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from g2d.report.answer import answer
from g2d.tables.accuracy import main_table
from g2d.tables.families import comparison_table
from tests.main_policies import main_policy
from tests.report.rows import BASE, GRPO, answered, comparison, comparisons, main

NONE, SOME, MORE = ("dpo", 0, 0.73, 2.0), ("g2d", 25, 0.74, 3.0), ("g2d", 50, 0.81, 4.0)
AGAINST_M0 = comparison(("dpo", 0), ("base", 0), 0.001)
BOUNDS, MARGIN = {0: 0.078, 25: 0.061}, 0.1


def headline(
    *rows: tuple[str, int, float, float],
    tests: Sequence[dict[str, object]] = (),
    bounds: Mapping[int, float] | None = None,
    n_seeds: int = 3,
    margin: float = MARGIN,
) -> str:
    table = main(BASE, *rows, n_seeds=n_seeds, half_width=0.04, bounds=bounds)
    tested = comparisons(*tests) if tests else None
    return answered(table, margin, tested).headline.replace("\u00a0", " ")


def lead(k: int, p_holm: float, low: float, high: float) -> dict[str, object]:
    """A test of K against K=0 with its corrected interval."""
    return comparison(("g2d", k), ("dpo", 0), p_holm) | {"family_low": low, "family_high": high}


def test_k_0_that_is_shown_to_be_within_the_margin_was_enough() -> None:
    assert headline(NONE, SOME, GRPO, bounds=BOUNDS) == (
        "K=0 was enough on b (greedy answers, margin 10 points): 73 % [69, 77], at most 7.8 points worse than the best "
        "K (95 %)."
    )
    tests = [lead(25, 0.01, 0.001, 0.019), AGAINST_M0]
    assert headline(NONE, SOME, bounds=BOUNDS, tests=tests).endswith(
        "(95 %), although K=25 is better by +1.0 points [+0.1, +1.9]."
    )
    assert headline(NONE, SOME, bounds=BOUNDS, n_seeds=1).startswith("With these weights, K=0 was enough on b")
    assert "73 % [69, 77], better than any other K (95 %)." in headline(NONE, SOME, bounds={0: 0.0, 25: 0.05})


def test_a_lead_of_at_least_the_margin_is_not_enough() -> None:
    tests = [lead(25, 0.4, -0.02, 0.04), lead(50, 0.001, 0.05, 0.11), AGAINST_M0]
    bounds = {0: 0.11, 25: 0.015, 50: 0.0}
    assert headline(NONE, SOME, MORE, tests=tests, bounds=bounds, margin=0.05) == (
        "K=0 was not enough on b (greedy answers, margin 5 points): K=0 73 %, K=50 81 %, +8.0 points [+5.0, +11.0]; "
        "K=25 was enough, at most 1.5 points worse than the best K (95 %)."
    )
    nothing_else = {0: 0.11, 25: 0.08, 50: 0.06}
    assert "; K=" not in headline(NONE, SOME, MORE, tests=tests, bounds=nothing_else, margin=0.05)


def test_the_replication_was_better_by_an_amount_that_may_be_below_the_margin() -> None:
    """An earlier grid of SmolLM2 had +4.8 [.6, 8.9], p = .032, with a margin of 5 points."""
    rows = ("dpo", 0, 0.64, 2.0), ("g2d", 5, 0.688, 3.0)
    tests = [lead(5, 0.032, 0.006, 0.089) | {"family_size": 1}, AGAINST_M0]
    assert headline(*rows, tests=tests, bounds={0: 0.081, 5: 0.0}, n_seeds=5, margin=0.05) == (
        "K=5 was better than K=0 on b (greedy answers, margin 5 points), by an amount that may be below the margin: "
        "K=0 64 %, K=5 69 %, +4.8 points [+0.6, +8.9]."
    )


@pytest.mark.parametrize(
    ("p_holm", "low", "bound", "start"),
    [
        (0.001, 0.05, 0.11, "K=0 was not enough on b"),
        (0.001, 0.0499, 0.11, "K=50 was better than K=0 on b"),
        (0.05, 0.0, 0.11, "K=50 was better than K=0 on b"),  # Holm rejects, so the interval ends at 0
        (0.051, -0.0001, 0.11, "Whether K=0 was enough is open on b"),
        (0.051, -0.0001, 0.0501, "Whether K=0 was enough is open on b"),
        (0.051, -0.0001, 0.05, "K=0 was enough on b"),
        (0.001, 0.0499, 0.05, "K=0 was enough on b"),
    ],
)
def test_borders_of_the_verdicts(p_holm: float, low: float, bound: float, start: str) -> None:
    tests = [lead(50, p_holm, low, 0.11), AGAINST_M0]
    assert headline(NONE, MORE, tests=tests, bounds={0: bound, 50: 0.0}, margin=0.05).startswith(start)


def test_open_names_the_most_accurate_k_and_the_bound() -> None:
    """Between equal policies, the K with the best bound is usually a K > 0."""
    bounds = {0: 0.035, 25: 0.018, 50: 0.02}
    tests = [lead(25, 0.4, -0.02, 0.04), lead(50, 0.06, -0.01, 0.03), AGAINST_M0]
    assert headline(NONE, SOME, MORE, tests=tests, bounds=bounds, margin=0.02) == (
        "Whether K=0 was enough is open on b (greedy answers, margin 2 points): K=0 73 %, K=50 81 %, "
        "+8.0 points [−1.0, +3.0]; K=0 is at most 3.5 points worse than the best K (95 %)."
    )


def test_if_nothing_is_better_than_m0_no_k_is_said_to_be_enough() -> None:
    tests = comparisons(
        comparison(("dpo", 0), ("base", 0), 0.3), comparison(("g2d", 25), ("base", 0), 0.2), lead(25, 0.01, 0.0, 0.02)
    )
    shown = answered(main(BASE, NONE, SOME, half_width=0.04, bounds=BOUNDS), MARGIN, tests)
    assert shown.headline.replace("\u00a0", " ") == (
        "No training is shown to help on b (greedy answers): M0 40 % [36, 44], K=0 73 %, K=25 74 %."
    )
    assert not any("enough" in sentence for sentence in shown.sentences)


def test_with_one_k() -> None:
    assert (
        headline(NONE) == "DPO without online RL (K=0) reached 73 % [69, 77] on b (greedy answers); no other K was run."
    )
    assert headline(SOME) == "K=25 did best on b (greedy answers), 74 % [70, 78]; K=0, without online RL, was not run."


@pytest.mark.parametrize(
    ("true_lead", "false"), [(0.03, "K=0 was not enough"), (0.05, "K=0 was enough"), (0.06, "K=0 was enough")]
)
def test_a_false_verdict_comes_in_at_most_one_grid_in_twenty(true_lead: float, false: str) -> None:
    """K=5 leads K=0 and K=10, with three seeds that scatter by a point and a margin of 5 points."""
    rng, runs, said = np.random.default_rng(3), 120, 0
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
        shown = answer(table, "m", "b", "greedy answers", 0.05, comparison_table(evaluations))
        said += shown.headline.startswith(false)
    assert binomtest(said, runs, 0.05, alternative="greater").pvalue > 0.001
