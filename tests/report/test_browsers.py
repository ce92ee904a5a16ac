"""The browsers: selection of problems and questions, contents and counts."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest
from g2d.problems import Problem
from g2d.report import browsers
from g2d.report.browsers import Answered, RolloutsAtK, Series, in_turn, ranked, series_keys
from g2d.rollouts.pairs import Pair, build_pairs
from tests.report.conftest import browsed_answers, browsed_pairs, harvest_frame


def browsed(config: Config, problems: list[Problem]) -> list[Series]:
    """The pairs of the small grid."""
    harvests = Grid(config).harvests
    return browsed_pairs(harvests, lambda harvest: harvest_frame(problems, harvest.k), problems, config)


M0 = Harvest("m", 0, 0, 0)
SMALL_10 = Harvest("m", 2, 10, 0)
SMALL_20 = Harvest("m", 2, 20, 0)
LARGE_10 = Harvest("m", 4, 10, 0)


def test_every_group_size_is_a_series_that_starts_with_m0() -> None:
    series = series_keys([LARGE_10, SMALL_20, SMALL_10, M0])
    assert series == {("m", 0, "", 2): [M0, SMALL_10, SMALL_20], ("m", 0, "", 4): [M0, LARGE_10]}


def test_m0_without_a_warm_up_is_a_series() -> None:
    assert list(series_keys([M0])) == [("m", 0, "", None)]


def test_harvests_of_another_reward_are_a_series_of_their_own() -> None:
    at_10 = Harvest("m", 2, 10, 0, "coin")
    at_0 = Harvest("m", 0, 0, 0, "coin")
    series = series_keys([M0, LARGE_10, at_10, at_0])
    assert series == {("m", 0, "", 4): [M0, LARGE_10], ("m", 0, "coin", 2): [at_0, at_10]}


def test_problems_with_pairs_at_most_k_come_first() -> None:
    paired = [["b", "c"], ["c"]]
    assert ranked(["a", "b", "c", "d"], paired)[:2] == ["c", "b"]


def test_the_order_of_problems_does_not_depend_on_the_file() -> None:
    paired = [["b", "c"], ["c"]]
    assert ranked(["a", "b", "c", "d"], paired) == ranked(["d", "c", "b", "a"], paired)


@pytest.fixture
def steps_at_10(config: Config, grid_problems: list[Problem]) -> dict[str, RolloutsAtK]:
    """Steps at K=10 of the problems that are shown."""
    steps = {}
    for problem in browsed(config, grid_problems)[0].shown:
        [steps[problem.problem_id]] = [step for step in problem.steps if step.k == 10]
    return steps


@pytest.fixture
def pairs_at_10(config: Config, grid_problems: list[Problem]) -> dict[str, Pair]:
    pairs = build_pairs(harvest_frame(grid_problems, 10), grid_problems, config.prompt, 0)
    return {pair["problem_id"]: pair for pair in pairs}


def test_a_step_holds_the_pair_that_was_drawn(
    steps_at_10: dict[str, RolloutsAtK], pairs_at_10: dict[str, Pair]
) -> None:
    shown = steps_at_10.keys() & pairs_at_10.keys()
    assert shown
    for name in shown:
        step = steps_at_10[name]
        pair = pairs_at_10[name]
        chosen, rejected = step.completions
        assert (chosen.role, chosen.sample) == ("chosen", pair["chosen_sample"])
        assert (rejected.role, rejected.sample) == ("rejected", pair["rejected_sample"])
        assert step.correct / step.n == pair["p_hat"]


def test_a_step_without_a_pair_has_one_example(
    steps_at_10: dict[str, RolloutsAtK], pairs_at_10: dict[str, Pair]
) -> None:
    shown = steps_at_10.keys() - pairs_at_10.keys()
    assert shown
    for name in shown:
        step = steps_at_10[name]
        [example] = step.completions
        assert example.role == "example"
        assert step.correct in (0, step.n)


@pytest.fixture
def upside_down(config: Config, grid_problems: list[Problem]) -> Series:
    """Harvests whose reward is 1 for incorrect rollouts."""

    def rollouts(harvest: Harvest) -> pd.DataFrame:
        frame = harvest_frame(grid_problems, harvest.k)
        return frame.assign(reward=1 - frame["reward"], reward_status="ok")

    harvests = [Harvest("tiny", 0, 0, 0, "wrong"), Harvest("tiny", 2, 10, 0, "wrong")]
    [series] = browsed_pairs(harvests, rollouts, grid_problems, config)
    return series


def test_fewer_problems_of_a_control_are_shown(upside_down: Series) -> None:
    assert (upside_down.variant, len(upside_down.shown)) == ("wrong", browsers.PROBLEMS_PER_CONTROL)


def test_a_harvest_that_another_reward_judged_shows_the_reward_beside_the_verdict(upside_down: Series) -> None:
    pairs = []
    for problem in upside_down.shown:
        pairs += [step.completions for step in problem.steps if len(step.completions) == 2]
    assert pairs
    for chosen, rejected in pairs:
        assert (chosen.role, chosen.verdict, chosen.reward) == ("chosen", "incorrect", 1)
        assert (rejected.role, rejected.verdict, rejected.reward) == ("rejected", "correct", 0)


@pytest.fixture
def answered(config: Config, grid_problems: list[Problem]) -> Callable[[], list[Answered]]:
    return lambda: browsed_answers(config, grid_problems)


def test_as_many_problems_are_shown_as_a_series_may_have(config: Config, grid_problems: list[Problem]) -> None:
    assert len(grid_problems) > browsers.PROBLEMS_PER_SERIES
    first, second = browsed(config, grid_problems)
    assert len(first.shown) == len(second.shown) == browsers.PROBLEMS_PER_SERIES


def test_as_many_questions_are_shown_as_a_benchmark_may_have(answered: Callable[[], list[Answered]]) -> None:
    easy, hard = answered()
    assert len(easy.shown) == len(hard.shown) == browsers.QUESTIONS_PER_BENCHMARK


def test_a_page_holds_as_many_problems_as_it_has_room_for(
    config: Config, grid_problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = browsed(config, grid_problems)
    room = sum(problem.size for problem in first.shown[:3] + second.shown[:3])
    monkeypatch.setattr(browsers, "MAX_CHARACTERS", room)
    for whole, series in zip((first, second), browsed(config, grid_problems), strict=True):
        assert series.shown == whole.shown[:3]


def test_a_page_holds_as_many_questions_as_it_has_room_for(
    answered: Callable[[], list[Answered]], monkeypatch: pytest.MonkeyPatch
) -> None:
    easy, hard = answered()
    room = sum(question.size for question in easy.shown[:3] + hard.shown[:3])
    monkeypatch.setattr(browsers, "MAX_CHARACTERS", room)
    for whole, benchmark in zip((easy, hard), answered(), strict=True):
        assert benchmark.shown == whole.shown[:3]


PATTERNS = ["11"] * 6 + ["00"] * 3 + ["10"] * 2 + ["01"]
RIGHT = {f"q{i}": pattern for i, pattern in enumerate(PATTERNS)}


def test_every_pattern_has_a_question_before_any_has_two() -> None:
    patterns = [RIGHT[name] for name in in_turn(RIGHT)]
    assert set(patterns[:2]) == {"10", "01"}  # disagreements first
    assert set(patterns[2:4]) == {"11", "00"}
    assert patterns[4] == "10"


def test_the_turn_has_every_question_in_an_order_that_does_not_depend_on_the_file() -> None:
    assert sorted(in_turn(RIGHT)) == sorted(RIGHT)
    assert in_turn(RIGHT) == in_turn(dict(reversed(RIGHT.items())))


def test_every_model_and_benchmark_has_its_answers(answered: Callable[[], list[Answered]]) -> None:
    easy, hard = answered()
    assert (easy.model, easy.benchmark) == ("tiny", "easy")
    assert (hard.model, hard.benchmark) == ("tiny", "hard")


def test_all_questions_are_counted(answered: Callable[[], list[Answered]], grid_problems: list[Problem]) -> None:
    [easy, _] = answered()
    assert easy.policies == ("M0", "DPO (K=0)", "G2D (K=10)", "G2D (K=20)", "GRPO (K=20, G=2)", "GRPO (K=20, G=4)")
    assert easy.right[:5] == ("111111", "000000", "110000", "001000", "110111")
    assert len(easy.right) == len(grid_problems)


def test_each_question_shows_an_answer_of_every_policy(
    answered: Callable[[], list[Answered]], grid_problems: list[Problem]
) -> None:
    [easy, _] = answered()
    names = [problem.problem_id for problem in grid_problems]
    for question in easy.shown:
        right = easy.right[names.index(question.problem_id)]
        for answer, mark in zip(question.completions, right, strict=True):
            assert (answer.verdict == "correct") == (mark == "1")
