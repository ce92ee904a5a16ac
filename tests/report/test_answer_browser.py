"""Which questions the answer browser shows, and what it counts."""

from __future__ import annotations

import pytest

from g2d.experiment.config import Config
from g2d.problems import Problem
from g2d.report import answer_browser, pair_browser
from g2d.report.answer_browser import browse_answers, in_turn
from tests.report.conftest import answer_frame


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
    monkeypatch.setattr(answer_browser, "QUESTIONS_PER_BENCHMARK", 5)
    found = browse_answers(config, answer_frame, lambda name: grid_problems)
    assert [(own.model, own.benchmark) for own in found] == [("tiny", "easy"), ("tiny", "hard")]
    [own, _] = found
    assert own.policies == ("M0", "DPO (K=0)", "G2D (K=10)", "G2D (K=20)", "GRPO (K=20, G=2)", "GRPO (K=20, G=4)")
    assert own.right[:5] == ("111111", "000000", "110000", "001000", "110111")
    assert len(own.right) == len(grid_problems)
    assert len(own.questions) == 5
    for question in own.questions:
        shown = "".join("01"[answer.verdict == "correct"] for answer in question.answers)
        assert shown == own.right[[problem.problem_id for problem in grid_problems].index(question.problem_id)]


def test_a_page_holds_as_many_questions_as_it_has_room_for(
    config: Config, grid_problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = browse_answers(config, answer_frame, lambda name: grid_problems)
    room = sum(question.size for own in full for question in own.questions[:2])
    monkeypatch.setattr(pair_browser, "MAX_CHARACTERS", room)
    assert [len(own.questions) for own in browse_answers(config, answer_frame, lambda name: grid_problems)] == [2, 2]
