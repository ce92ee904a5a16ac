"""The headline: first K=0, and only claims that a test supports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from g2d.report.answer import answer
from tests.report.test_answer import BASE, GRPO, comparison, comparisons, main

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
    return answer(table, "m", "b", margin, tested).headline.replace("\u00a0", " ")


def test_k_0_that_is_shown_to_be_within_the_margin_was_enough_and_the_margin_is_named() -> None:
    assert headline(NONE, SOME, GRPO, bounds=BOUNDS) == (
        "K=0 was enough on b (margin 10 points): 73 % [69, 77], at most 7.8 points worse than the best K (95 %)."
    )
    tests = [comparison(("g2d", 25), ("dpo", 0), 0.01), AGAINST_M0]
    assert "although K=25 is better by +1.0 points" in headline(NONE, SOME, bounds=BOUNDS, tests=tests)
    assert headline(NONE, SOME, bounds=BOUNDS, n_seeds=1).startswith("With these weights, K=0 was enough on b")


@pytest.mark.parametrize("enough", [False, True])
def test_without_a_test_k_0_is_never_said_not_to_be_enough(enough: bool) -> None:
    """Between equal policies, the K with the best bound is usually a K > 0."""
    bounds = {0: 0.035, 25: 0.018, 50: 0.02}
    tests = [comparison(("g2d", 25), ("dpo", 0), 0.4), comparison(("g2d", 50), ("dpo", 0), 0.06), AGAINST_M0]
    assert headline(NONE, SOME, MORE, tests=tests, bounds=bounds, margin=0.02 if enough else 0.01) == (
        "Whether K > 0 is needed is open on b: K=0 73 %, K=50 81 %; "
        "K=0 is at most 3.5 points worse than the best K (95 %)."
    )


def test_a_k_that_a_test_shows_to_be_better_and_the_smallest_within_the_margin() -> None:
    tests = [comparison(("g2d", 50), ("dpo", 0), 0.003), AGAINST_M0]
    bounds = {0: 0.1, 25: 0.015, 50: 0.0}
    assert headline(NONE, SOME, MORE, tests=tests, bounds=bounds, margin=0.02) == (
        "K=0 was not enough on b: 73 %, K=50 81 %, +8.0 points [−2.1, +6.1]; K=25 was (margin 2 points), "
        "at most 1.5 points worse than the best K (95 %)."
    )
    none_bounded = {0: 0.1, 25: 0.05, 50: 0.03}
    assert " was (margin" not in headline(NONE, SOME, MORE, tests=tests, bounds=none_bounded, margin=0.02)


def test_if_nothing_is_better_than_m0_no_k_is_said_to_be_enough() -> None:
    tests = [comparison(("dpo", 0), ("base", 0), 0.3), comparison(("g2d", 25), ("base", 0), 0.2)]
    assert headline(NONE, SOME, tests=tests, bounds=BOUNDS) == (
        "No training is shown to help on b: M0 40 % [36, 44], K=0 73 %, K=25 74 %."
    )


def test_without_bounds_or_with_one_k() -> None:
    assert headline(("dpo", 0, 0.9, 2.0), SOME).startswith(
        "Online RL did harm on b: K=0 90 % [86, 94], K=25 74 % [70, 78], −16.0"
    )
    assert headline(NONE) == "DPO without online RL (K=0) reached 73 % [69, 77] on b; no other K was run."
    assert headline(SOME) == "K=25 did best on b, 74 % [70, 78]; K=0, without online RL, was not run."
