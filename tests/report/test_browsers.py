"""The browsers: selection of problems and questions, contents and counts."""

from __future__ import annotations

import pandas as pd
import pytest

from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.grid.policy import Harvest
from g2d.problems import Problem
from g2d.report import browsers
from g2d.report.browsers import Series, browse_answers, browse_pairs, in_turn, ranked, series_keys
from g2d.rollouts.pairs import build_pairs
from tests.report.conftest import answer_frame, harvest_frame


def browsed(config: Config, problems: list[Problem]) -> list[Series]:
    return browse_pairs(
        Grid(config).harvests,
        pairs=lambda key: build_pairs(harvest_frame(problems, key.k), problems, config.prompt, key.seed),
        rollouts=lambda key: harvest_frame(problems, key.k),
        problems={"tiny": {problem.problem_id: problem for problem in problems}},
    )


def test_every_group_size_is_a_series_that_starts_with_m0() -> None:
    keys = [Harvest("m", g, k, 0) for g, k in [(4, 10), (2, 20), (0, 0), (2, 10)]]
    series = {at: [key.k for key in members] for at, members in series_keys(keys).items()}
    assert series == {("m", 0, "", 2): [0, 10, 20], ("m", 0, "", 4): [0, 10]}
    assert list(series_keys([Harvest("m", 0, 0, 0)])) == [("m", 0, "", None)]
    controls = [Harvest("m", g, k, 0, "coin") for g, k in [(2, 10), (0, 0)]]
    series = {at: [key.folder for key in members] for at, members in series_keys([*keys, *controls]).items()}
    assert series["m", 0, "coin", 2] == ["m/seed0/coin/harvest/g0/k0", "m/seed0/coin/harvest/g2/k10"]
    assert series["m", 0, "", 4] == ["m/seed0/harvest/g0/k0", "m/seed0/harvest/g4/k10"]


def test_problems_with_pairs_at_most_k_come_first_whatever_the_order_of_the_file() -> None:
    names, paired = ["a", "b", "c", "d"], [["b", "c"], ["c"]]
    order = ranked(names, paired)
    assert order[:2] == ["c", "b"]
    assert order == ranked(reversed(names), paired)


def test_a_step_holds_the_pair_that_was_drawn(config: Config, grid_problems: list[Problem]) -> None:
    series = browsed(config, grid_problems)[0]
    pairs = build_pairs(harvest_frame(grid_problems, 10), grid_problems, config.prompt, 0)
    drawn = {pair["problem_id"]: pair for pair in pairs}
    for story in series.shown:
        step = next(step for step in story.steps if step.k == 10)
        samples = {completion.role: completion.sample for completion in step.completions}
        if pair := drawn.get(story.problem_id):
            assert samples == {"chosen": pair["chosen_sample"], "rejected": pair["rejected_sample"]}
            assert step.correct / step.n == pair["p_hat"]
        else:
            assert list(samples) == ["example"]
            assert step.correct in (0, step.n)


def test_a_harvest_that_another_reward_judged_shows_the_reward_beside_the_verdict(
    config: Config, grid_problems: list[Problem]
) -> None:
    """The reward is the opposite of correctness: it chooses wrong rollouts, and fewer problems are shown."""

    def upside_down(key: Harvest) -> pd.DataFrame:
        return harvest_frame(grid_problems, key.k).assign(reward=lambda rows: 1 - rows["reward"], reward_status="ok")

    keys = [Harvest("tiny", 0, 0, 0, "wrong"), Harvest("tiny", 2, 10, 0, "wrong")]
    [series] = browse_pairs(
        keys,
        pairs=lambda key: build_pairs(upside_down(key), grid_problems, config.prompt, key.seed),
        rollouts=upside_down,
        problems={"tiny": {problem.problem_id: problem for problem in grid_problems}},
    )
    assert (series.variant, len(series.shown)) == ("wrong", browsers.PROBLEMS_PER_CONTROL)
    pairs = [step.completions for story in series.shown for step in story.steps if len(step.completions) == 2]
    assert pairs
    for chosen, rejected in pairs:
        assert (chosen.role, chosen.verdict, chosen.reward) == ("chosen", "incorrect", 1)
        assert (rejected.role, rejected.verdict, rejected.reward) == ("rejected", "correct", 0)


def test_a_page_holds_as_much_as_it_has_room_for(
    config: Config, grid_problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(grid_problems) > browsers.PROBLEMS_PER_SERIES
    for n_shown, browse in (
        (browsers.PROBLEMS_PER_SERIES, lambda: browsed(config, grid_problems)),
        (
            browsers.QUESTIONS_PER_BENCHMARK,
            lambda: browse_answers(Grid(config), answer_frame, lambda name: grid_problems),
        ),
    ):
        full = browse()
        assert [len(series.shown) for series in full] == [n_shown] * 2
        with monkeypatch.context() as patch:
            patch.setattr(browsers, "MAX_CHARACTERS", sum(one.size for series in full for one in series.shown[:3]))
            assert [series.shown for series in browse()] == [series.shown[:3] for series in full]


def test_every_pattern_has_a_question_before_any_has_two() -> None:
    right = {f"q{i}": pattern for i, pattern in enumerate(["11"] * 6 + ["00"] * 3 + ["10"] * 2 + ["01"])}
    order = in_turn(right)
    assert {right[name] for name in order[:2]} == {"10", "01"}  # disagreements first
    assert {right[name] for name in order[2:4]} == {"11", "00"}
    assert right[order[4]] == "10"
    assert sorted(order) == sorted(right)
    assert order == in_turn(dict(reversed(right.items())))


def test_all_questions_are_counted_and_each_shows_an_answer_of_every_policy(
    config: Config, grid_problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsers, "QUESTIONS_PER_BENCHMARK", 5)
    answered = browse_answers(Grid(config), answer_frame, lambda name: grid_problems)
    assert [(easy.model, easy.benchmark) for easy in answered] == [("tiny", "easy"), ("tiny", "hard")]
    [easy, _] = answered
    assert easy.policies == ("M0", "DPO (K=0)", "G2D (K=10)", "G2D (K=20)", "GRPO (K=20, G=2)", "GRPO (K=20, G=4)")
    assert easy.right[:5] == ("111111", "000000", "110000", "001000", "110111")
    assert len(easy.right) == len(grid_problems)
    assert len(easy.shown) == 5
    for question in easy.shown:
        shown = "".join("01"[answer.verdict == "correct"] for answer in question.completions)
        assert shown == easy.right[[problem.problem_id for problem in grid_problems].index(question.problem_id)]
