"""The headline: one line that says what is shown and nothing beyond."""

from __future__ import annotations

import pandas as pd

from g2d.report.answer import answer
from tests.report.test_answer import BASE, GRPO, comparison, comparisons, main, margins

NONE, SOME, MORE = ("dpo", 0, 0.73, 2.0), ("g2d", 25, 0.74, 3.0), ("g2d", 50, 0.81, 4.0)


def headline(
    *rows: tuple[str, int, float, float],
    tests: pd.DataFrame | None = None,
    bounds: pd.DataFrame | None = None,
    n_seeds: int = 3,
) -> str:
    return answer(main(BASE, *rows, n_seeds=n_seeds, half_width=0.04), "m", "b", tests, bounds).headline.replace(
        "\u00a0", " "
    )


def test_the_smallest_k_that_is_shown_to_be_enough() -> None:
    bounds = margins((0, 0.078, True), (25, 0.061, True), margin=0.1)
    assert (
        headline(NONE, SOME, GRPO, bounds=bounds)
        == "K=0 was enough on b: 73 % [69, 77], K=25 no more than 7.8 points better; GRPO alone 50 %."
    )
    bounds = margins((0, 0.15, False), (25, 0.018, True), (50, 0.0, True))
    assert (
        headline(NONE, SOME, MORE, bounds=bounds)
        == "K=25 was enough on b: 74 % [70, 78], no other K more than 1.8 points better; K=0 73 %."
    )
    bounds = margins((0, 0.15, False), (25, 0.15, False), (50, 0.0, True))
    assert headline(NONE, SOME, MORE, bounds=bounds).startswith("K=50 was enough on b: 81 % [77, 85], better than any")


def test_what_is_not_shown_is_not_said_to_be_enough() -> None:
    """No significant difference from the best is no evidence that K=0 is as good."""
    bounds = margins((0, 0.06, False), (25, 0.05, False))
    said = headline(NONE, SOME, tests=comparisons(comparison(("g2d", 25), ("dpo", 0), 0.4)), bounds=bounds)
    assert said == (
        "Whether online RL helps is open on b: 73 % [69, 77] without it (K=0), 74 % [70, 78] with K=25, +1.0 points "
        "[−2.1, +6.1]."
    )


def test_a_difference_without_a_bound() -> None:
    bounds = margins((0, 0.1, False), (25, 0.05, False))
    tests = comparisons(comparison(("g2d", 25), ("dpo", 0), 0.003))
    assert headline(NONE, SOME, tests=tests, bounds=bounds).startswith(
        "Online RL helped on b: 73 % [69, 77] without it"
    )
    worse = headline(("dpo", 0, 0.9, 2.0), SOME)
    assert worse.startswith("Online RL did harm on b: 90 % [86, 94] without it (K=0), 74 % [70, 78] with K=25, −16.0")


def test_one_seed_is_about_these_weights() -> None:
    bounds = margins((0, 0.078, True), (25, 0.061, True), margin=0.1)
    assert headline(NONE, SOME, bounds=bounds, n_seeds=1).startswith("With these weights, K=0 was enough on b")


def test_a_grid_with_one_k() -> None:
    assert headline(NONE) == "DPO without online RL (K=0) reached 73 % [69, 77] on b; no other K was run."
    assert headline(SOME) == "K=25 did best on b, 74 % [70, 78]; K=0, without online RL, was not run."
