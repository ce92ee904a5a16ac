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
from g2d.report.browsers import (
    Answered,
    RolloutsAtK,
    Series,
    browse_answers,
    browse_pairs,
    in_turn,
    ranked,
    series_keys,
)
from g2d.rollouts.pairs import Pair, build_pairs
from tests.report.conftest import answer_frame, harvest_frame


def browsed(config: Config, problems: list[Problem]) -> list[Series]:
    """The pairs of the small grid."""

    def pairs(harvest: Harvest) -> list[Pair]:
        return build_pairs(harvest_frame(problems, harvest.k), problems, config.prompt, harvest.seed)

    return browse_pairs(
        Grid(config).harvests,
        pairs=pairs,
        rollouts=lambda harvest: harvest_frame(problems, harvest.k),
        problems={"tiny": {problem.problem_id: problem for problem in problems}},
    )


M0 = Harvest("m", 0, 0, 0)
SMALL_GROUPS = [Harvest("m", 2, 20, 0), Harvest("m", 2, 10, 0)]
LARGE_GROUPS = [Harvest("m", 4, 10, 0)]


def test_every_group_size_is_a_series_that_starts_with_m0() -> None:
    series = series_keys([*LARGE_GROUPS, *SMALL_GROUPS, M0])
    assert list(series) == [("m", 0, "", 2), ("m", 0, "", 4)]
    assert [harvest.k for harvest in series["m", 0, "", 2]] == [0, 10, 20]
    assert [harvest.k for harvest in series["m", 0, "", 4]] == [0, 10]


def test_m0_without_a_warm_up_is_a_series() -> None:
    assert list(series_keys([M0])) == [("m", 0, "", None)]


def test_harvests_of_another_reward_are_a_series_of_their_own() -> None:
    controls = [Harvest("m", 2, 10, 0, "coin"), Harvest("m", 0, 0, 0, "coin")]
    series = series_keys([M0, *LARGE_GROUPS, *controls])
    assert [harvest.folder for harvest in series["m", 0, "coin", 2]] == [
        "m/seed0/coin/harvest/g0/k0",
        "m/seed0/coin/harvest/g2/k10",
    ]
    assert [harvest.folder for harvest in series["m", 0, "", 4]] == ["m/seed0/harvest/g0/k0", "m/seed0/harvest/g4/k10"]


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
        step, pair = steps_at_10[name], pairs_at_10[name]
        samples = {completion.role: completion.sample for completion in step.completions}
        assert samples == {"chosen": pair["chosen_sample"], "rejected": pair["rejected_sample"]}
        assert step.correct / step.n == pair["p_hat"]


def test_a_step_without_a_pair_has_one_example(
    steps_at_10: dict[str, RolloutsAtK], pairs_at_10: dict[str, Pair]
) -> None:
    shown = steps_at_10.keys() - pairs_at_10.keys()
    assert shown
    for name in shown:
        step = steps_at_10[name]
        assert [completion.role for completion in step.completions] == ["example"]
        assert step.correct in (0, step.n)


@pytest.fixture
def upside_down(config: Config, grid_problems: list[Problem]) -> Series:
    """Harvests whose reward is 1 for incorrect rollouts."""

    def rollouts(harvest: Harvest) -> pd.DataFrame:
        frame = harvest_frame(grid_problems, harvest.k)
        return frame.assign(reward=1 - frame["reward"], reward_status="ok")

    [series] = browse_pairs(
        [Harvest("tiny", 0, 0, 0, "wrong"), Harvest("tiny", 2, 10, 0, "wrong")],
        pairs=lambda harvest: build_pairs(rollouts(harvest), grid_problems, config.prompt, harvest.seed),
        rollouts=rollouts,
        problems={"tiny": {problem.problem_id: problem for problem in grid_problems}},
    )
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
    return lambda: browse_answers(Grid(config), lambda policy: policy, answer_frame, lambda name: grid_problems)


def test_as_many_problems_are_shown_as_a_series_may_have(config: Config, grid_problems: list[Problem]) -> None:
    assert len(grid_problems) > browsers.PROBLEMS_PER_SERIES
    assert [len(series.shown) for series in browsed(config, grid_problems)] == [browsers.PROBLEMS_PER_SERIES] * 2


def test_as_many_questions_are_shown_as_a_benchmark_may_have(answered: Callable[[], list[Answered]]) -> None:
    assert [len(benchmark.shown) for benchmark in answered()] == [browsers.QUESTIONS_PER_BENCHMARK] * 2


def test_a_page_holds_as_many_problems_as_it_has_room_for(
    config: Config, grid_problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = browsed(config, grid_problems)
    room = sum(problem.size for problem in first.shown[:3] + second.shown[:3])
    monkeypatch.setattr(browsers, "MAX_CHARACTERS", room)
    assert [series.shown for series in browsed(config, grid_problems)] == [first.shown[:3], second.shown[:3]]


def test_a_page_holds_as_many_questions_as_it_has_room_for(
    answered: Callable[[], list[Answered]], monkeypatch: pytest.MonkeyPatch
) -> None:
    easy, hard = answered()
    room = sum(question.size for question in easy.shown[:3] + hard.shown[:3])
    monkeypatch.setattr(browsers, "MAX_CHARACTERS", room)
    assert [benchmark.shown for benchmark in answered()] == [easy.shown[:3], hard.shown[:3]]


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
    assert [(benchmark.model, benchmark.benchmark) for benchmark in answered()] == [("tiny", "easy"), ("tiny", "hard")]


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
        right = "".join("1" if answer.verdict == "correct" else "0" for answer in question.completions)
        assert right == easy.right[names.index(question.problem_id)]
