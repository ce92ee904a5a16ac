"""A reward as TRL calls it."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.problems import Problem
from g2d.rewards.controls import Format, Wrong
from g2d.rewards.registry import TRUTH, ByKind
from g2d.rewards.reward import Judgement
from g2d.rewards.training_reward import TrainingReward, completion_text, log_verdicts
from g2d.settings import Section
from g2d.verifier import Verification
from tests.rewards.models import rewards_of

PROBLEMS = [Problem("p", "?", "5", 1, None, "a test"), Problem("q", "?", "5", 1, None, "a test")]
WRONG = Wrong(reward="wrong")


def verdicts_of(verifications: list[Verification]) -> list[str]:
    return [verification.verdict for verification in verifications]


def call(reward: Section, answers: list[str], groups: list[str], **more: Any) -> tuple[Any, dict[str, float], Any]:
    metrics: dict[str, float] = {}
    seen: list[tuple[list[Verification], list[Judgement]]] = []
    function = TrainingReward(
        reward,
        PROBLEMS,
        seed=0,
        group_size=2,
        on_judged=lambda verified, rewards, **_: seen.append((verified, rewards)),
    )
    values = function(
        completions=[[{"role": "assistant", "content": rf"\boxed{{{answer}}}"}] for answer in answers],
        problem_id=[group[0] for group in groups],
        group=groups,
        completion_ids=[[1]] * len(answers),
        trainer_state=object(),
        log_metric=metrics.__setitem__,
        **more,
    )
    assert function.__name__ == f"{reward.reward}_reward"  # type: ignore[attr-defined]
    return values, metrics, seen[0]


def test_the_default_reward_is_unchanged() -> None:
    values, metrics, (verified, rewards) = call(TRUTH, ["5", "6", "7", "5"], ["p", "p", "q", "q"])
    assert values == [1, 0, 0, 1] == rewards_of(rewards)
    assert verdicts_of(verified) == ["correct", "incorrect", "incorrect", "correct"]
    assert metrics["verdicts/correct"] == 0.5
    for name in metrics:
        assert name.startswith("verdicts/")


def test_training_sees_the_reward_and_the_rows_have_the_truth_too() -> None:
    values, metrics, (verified, _) = call(WRONG, ["6", "6", "5", "7"], ["p", "p", "q", "q"])
    assert values == [1, 1, 0, 1]
    assert verdicts_of(verified) == ["incorrect", "incorrect", "correct", "incorrect"]
    assert metrics["verdicts/correct"] == 0.25
    assert (metrics["rewards/judged"], metrics["rewards/not_finite"]) == (1, 0)


def test_a_problem_drawn_twice_in_a_step_is_two_groups() -> None:
    assert call(WRONG, ["6", "6", "7", "7"], ["p", "p", "p#asked-2", "p#asked-2"])[0] == [1, 1, 1, 1]


def test_shares_of_verdicts_count_only_verifiable_prompts() -> None:
    metrics: dict[str, float] = {}
    log_verdicts([Verification("correct", "1"), Verification("no_reference", None)], metrics.__setitem__)
    assert metrics["verdicts/correct"] == 1
    assert "verdicts/no_reference" not in metrics


def test_each_kind_of_problem_has_its_own_metrics() -> None:
    metrics: dict[str, float] = {}
    reward = ByKind(verifiable=WRONG, open_ended=Format(reward="format"))
    problems = [PROBLEMS[0], Problem("o", "?", None, None, None, "a test")]
    texts = [r"\boxed{6}", r"\boxed{5}", r"\boxed{a}", r"\boxed{b}"]
    ids = [[1], [1, 2], [1, 2, 3], [1] * 5]
    groups = ["p", "p", "o", "o"]
    TrainingReward(reward, problems, seed=0, group_size=2)(texts, groups, groups, ids, log_metric=metrics.__setitem__)
    assert {name: value for name, value in metrics.items() if name.endswith(("/verifiable", "/open_ended"))} == {
        "rewards/judged/verifiable": 1,
        "rewards/without/verifiable": 0,
        "reward/verifiable": 0.5,
        "completions/mean_length/verifiable": 1.5,
        "rewards/judged/open_ended": 1,
        "rewards/without/open_ended": 0,
        "reward/open_ended": 1,
        "completions/mean_length/open_ended": 4,
    }


def test_half_a_group_is_not_judged() -> None:
    with pytest.raises(RuntimeError, match="1 completions of q were judged together instead of 2"):
        call(WRONG, ["6", "6", "7"], ["p", "p", "q"])


@pytest.mark.parametrize("form", [str, lambda text: [{"role": "assistant", "content": text}]])
def test_completions_in_both_of_trls_formats(form: Any) -> None:
    texts = [r"so \boxed{5}", "so 5", r"so \boxed{5", r"so \boxed{\frac{10}{2}}"]
    function = TrainingReward(TRUTH, PROBLEMS, seed=0, group_size=4)
    assert function([*map(form, texts)], ["p"] * 4, ["p"] * 4) == [1, 0, 0, 1]
    assert function([], [], []) == []


def test_the_end_token_tells_truncated_completions() -> None:
    function = TrainingReward(TRUTH, PROBLEMS, seed=0, group_size=4, eos_token_ids=[0])
    ids = [[7, 0], [7, 8], [7, 8], []]
    verified, _ = function.judged(["5", "5", r"\boxed{5}", "5"], ["p"] * 4, ["p"] * 4, ids)
    assert verdicts_of(verified) == ["no_boxed", "truncated", "correct", "truncated"]


@pytest.mark.parametrize(
    "completion",
    ["", [], [{"role": "assistant"}], [{"role": "assistant", "content": None}], [{"content": [{"text": "5"}]}]],
)
def test_a_completion_without_text_is_empty(completion: Any) -> None:
    assert completion_text(completion) == ""
