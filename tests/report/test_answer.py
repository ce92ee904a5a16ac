"""Sentences of the answer: every verdict, with the numbers that support it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from g2d.report.answer import Answer, duration
from tests.report.rows import BASE, GRPO, NONE, WARMED, answered, comparison, comparisons, main

MARGIN = 0.02


@pytest.mark.parametrize(
    ("rows", "tests", "parts"),
    [
        (
            (BASE, NONE, ("g2d", 150, 0.6, 4.0), GRPO),
            ((WARMED[:2], NONE[:2], 0.003), (WARMED[:2], GRPO[:2], 0.01)),
            [
                "On b (greedy answers), DPO at K=0, without online RL, reaches 50.0 % [48.0, 52.0], and the most "
                "accurate warmed-up policy, K=150, 60.0 % [58.0, 62.0].",
                "M0 starts from 40.0 %",
                "the best DPO policy, K=150, is above it",
                "K=150, the most accurate of the DPO policies, took 4 device-hours; GRPO alone (G=2, K=1000) took 26 "
                "device-hours",
            ],
        ),
        (
            (BASE, NONE, WARMED, GRPO),
            (),
            [
                "not significantly different from it (+1.0 points, not tested)",
                "K=150, the most accurate of the DPO policies, took 4 device-hours",
            ],
        ),
        (
            (("dpo", 0, 0.51, 2.0), ("g2d", 150, 0.5, 4.0)),
            (),
            ["K=0, the most accurate of the DPO policies"],
        ),
        (
            (BASE, NONE, WARMED, GRPO),
            ((WARMED[:2], NONE[:2], 0.003), (WARMED[:2], GRPO[:2], 0.4)),
            [
                "not significantly different from it (+1.0 points [−2.1, +6.1], exploratory, p = 0.4; 0.8 as the best "
                "of 2)",
            ],
        ),
        (  # whichever policy is the reference of a test
            (BASE, NONE, WARMED, GRPO),
            ((GRPO[:2], WARMED[:2], 0.01),),
            ["K=150, is above it (+1.0 points [−6.1, +2.1], exploratory, p = 0.01; 0.02 as the best of 2)"],
        ),
        ((NONE, WARMED), (), ["M0 was not evaluated; GRPO alone was not run"]),
        ((BASE, ("g2d", 150, 0.5, 2.0)), (), ["cannot say whether any was needed"]),
        ((BASE, NONE), (), ["no other K was run"]),
        ((BASE,), (), ["No policy was trained on a harvest, so there is nothing to compare yet."]),
    ],
)
def test_the_effect_of_k_the_baselines_and_the_price(
    rows: Sequence[tuple[str, int, float, float]], tests: Sequence[Any], parts: Sequence[str]
) -> None:
    compared = comparisons(*(comparison(*test) for test in tests)) if tests else None
    shown = answered(main(*rows), MARGIN, compared)
    text = " ".join([*shown.sentences, *shown.details]).replace("\u00a0", " ")
    for part in parts:
        assert part in text
    assert ("GRPO alone (" in text) == (GRPO in rows)


@pytest.mark.parametrize(("lead", "p", "place"), [(0.03, 0.017, "not significantly"), (0.03, 0.016, "above it")])
def test_the_best_of_several_is_above_grpo_only_if_corrected_for_the_choice(lead: float, p: float, place: str) -> None:
    rows = main(BASE, NONE, ("g2d", 50, 0.5, 3.0), ("g2d", 150, GRPO[2] + lead, 4.0), GRPO)
    test = comparison(("g2d", 150), GRPO[:2], p) | {"difference": lead}
    assert f"K=150, is {place}" in answered(rows, MARGIN, comparisons(test)).sentences[-2]


def test_a_best_policy_below_grpo_needs_no_correction() -> None:
    rows = main(BASE, NONE, WARMED, ("grpo", 1000, 0.6, 26.0))
    test = comparison(WARMED[:2], GRPO[:2], 0.04) | {"difference": -0.09}
    assert "K=150, is below it" in answered(rows, MARGIN, comparisons(test)).sentences[-2]


def test_an_automatic_warmup_is_mentioned_and_never_the_answer() -> None:
    grid = [BASE, NONE, ("g2d", 150, 0.6, 4.0), GRPO]
    stopped = answered(main(*grid, ("g2d-auto", 120, 0.62, 5.0)), MARGIN)
    assert stopped.sentences == answered(main(*grid), MARGIN).sentences
    assert "chose K=120, the mean over seeds" in stopped.details[1]
    assert "62.0\u00a0% [60.0, 64.0] for 5 device-hours; against K=150 +2.0 points, not tested." in stopped.details[1]


def test_which_k_is_enough_is_a_matter_of_what_is_shown_not_of_what_is_not() -> None:
    """K=0 is not significantly worse than the best, but may be 6.1 points worse, so it is not called enough."""
    rows = (("dpo", 0, 0.5, 2.0), ("g2d", 50, 0.515, 3.0), ("g2d", 150, 0.53, 5.0))
    shown = answered(main(*rows, bounds={0: 0.0601, 50: 0.018, 150: 0.0}), MARGIN)
    assert shown.sentences[1] == (
        "K=0 is at most 6.1 points worse than the best K, K=50 at most 1.8 and K=150 at most 0.0 (one-sided 95 % "
        "bounds, all at once): K=50 and K=150 are shown to be enough with a margin of 2 points."
    )
    assert shown.details[0].startswith(
        "K=50 took 3 device-hours; K=150, the most accurate of the DPO policies, took 5 device-hours"
    )
    shown = answered(main(*rows, bounds=dict.fromkeys((0, 50, 150), 0.2)), margin=0.1)
    assert shown.sentences[1].endswith(": no K is shown to be enough with a margin of 10 points.")
    assert shown.details[0].startswith("K=150, the most accurate of the DPO policies, took")
    assert len(answered(main(NONE, bounds={0: 0.0}), MARGIN).sentences) == 3


def test_grpo_is_its_last_k_not_the_best_of_its_curve() -> None:
    rows = main(BASE, NONE, WARMED, ("grpo", 500, 0.9, 13.0), GRPO)
    assert "GRPO alone (G=2, K=1000) reaches 50.0" in " ".join(answered(rows, MARGIN).sentences)


def test_a_policy_that_is_worse_than_m0_is_no_help() -> None:
    worse = comparison(("g2d", 150), ("base", 0), 0.01) | {"difference": -0.02}
    better = comparison(("dpo", 0), ("base", 0), 0.025)
    by_chance = comparison(("dpo", 0), ("base", 0), 0.026)
    for tests, helps in (((worse,), False), ((worse, better), True), ((worse, by_chance), False)):
        headline = answered(main(BASE, NONE, WARMED), MARGIN, comparisons(*tests)).headline
        assert ("No training is shown to help on b" in headline) is not helps


def test_with_one_seed_every_claim_is_about_these_weights() -> None:
    grid = (BASE, NONE, WARMED, ("g2d-auto", 120, 0.62, 5.0), GRPO)
    pairs = [(("g2d", 150), ("dpo", 0)), (("g2d", 150), ("grpo", 1000)), (("g2d-auto", 120), ("g2d", 150))]
    for n_seeds, p in ((1, 0.2), (1, 0.001), (2, 0.2)):
        tests = comparisons(*(comparison(*pair, p) for pair in pairs))
        shown = answered(main(*grid, n_seeds=n_seeds, bounds={0: 0.06, 150: 0.01}), MARGIN, tests)
        n_claims = 0
        for sentence in (*shown.sentences, *shown.details, *shown.notes):
            if " p = " in sentence or "95 %" in sentence or "[−" in sentence:
                n_claims += 1
                assert ("these weights" in sentence) == (n_seeds == 1)
        assert n_claims == 4  # GRPO, bounds, sample; automatic stop


def test_one_seed_is_named() -> None:
    shown = answered(main(NONE, WARMED, n_seeds=1), MARGIN)
    assert "with these weights of one seed; other seeds may show the reverse." in shown.sentences[-1]
    assert "The best of 2 policies was chosen on the same problems, so its accuracy is biased upwards." in shown.notes


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {},
            [
                "Seeds make 90\u00a0% of the squared error of K=150 against K=0: more problems would not settle it.",
                "To find 5 points with 80\u00a0% probability takes some 28 to 567 seeds.",
            ],
        ),
        (
            {"seed_share": 0.2, "problem_share": 0.5},
            ["Problems and single answers make 80\u00a0% of the squared error", "takes more than 1000 seeds."],
        ),
        ({"standard_error": 0.5}, ["takes more than 1000 seeds."]),
    ],
)
def test_an_open_answer_says_what_makes_its_error_and_how_many_seeds_would_settle_it(
    changes: dict[str, object], parts: list[str]
) -> None:
    test = comparison(("g2d", 150), ("dpo", 0), 0.6) | changes
    table = main(NONE, WARMED, n_seeds=5, bounds={0: 0.16, 150: 0.08})
    text = words(answered(table, 0.05, comparisons(test)))
    for part in parts:
        assert part in text
    for settled in ({0: 0.04, 150: 0.08}, {0: (0.01, 0.16), 150: 0.08}):
        table = main(NONE, WARMED, n_seeds=5, bounds=settled)
        assert "of the squared error of" not in words(answered(table, 0.05, comparisons(test)))
    one_seed = comparisons(test | {"n_seeds": 1})
    assert "of the squared error of" not in words(answered(main(NONE, WARMED, n_seeds=1), 0.05, one_seed))


def test_with_several_group_sizes_a_policy_is_named_with_its_own() -> None:
    table = main(NONE, WARMED, ("g2d", 150, 0.6, 5.0))
    table["group_size"] = pd.array([None, 2, 4], dtype="Int64")
    assert "K=150 (G=4), 60" in answered(table, MARGIN).sentences[0]


@pytest.mark.parametrize(
    ("hours", "text"),
    [(26.6, "26.6 device-hours"), (1.0, "1 device-hour"), (0.5, "30 device-minutes"), (0.006, "22 device-seconds")],
)
def test_device_time_comes_in_the_unit_that_suits_it(hours: float, text: str) -> None:
    assert duration(hours) == text


def test_groups_of_problems_are_named_if_problems_are_not_independent() -> None:
    table = main(BASE, NONE, WARMED)
    assert "over 3 seeds and 500 problems." in words(answered(table, MARGIN))
    assert "over 3 seeds and 32 groups of 500 problems." in words(answered(table.assign(n_clusters=32), MARGIN))


def words(answer: Answer) -> str:
    return " ".join([*answer.sentences, *answer.details, *answer.notes])
