"""The verifier as TRL calls it."""

from __future__ import annotations

import pickle

import pytest

from g2d.verifier.reward import MathVerifyReward, completion_text, math_verify_reward

TEXTS = [r"so \boxed{5}", r"so \boxed{6}", "so 5", r"so \boxed{5", r"so \boxed{\frac{10}{2}}"]
REWARDS = [1.0, 0.0, 0.0, 0.0, 1.0]


def conversation(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize("form", [str, conversation])
def test_both_formats_of_completions(form):
    rewards = math_verify_reward(completions=[form(text) for text in TEXTS], answer=["5"] * len(TEXTS))
    assert rewards == REWARDS


def test_what_trl_passes():
    """TRL 1.16 calls with keywords: prompts, completions, completion_ids, every column, state and loggers."""
    metrics = {}
    rewards = math_verify_reward(
        prompts=[[{"role": "user", "content": "2+3?"}]] * len(TEXTS),
        completions=[conversation(text) for text in TEXTS],
        completion_ids=[[1, 2]] * len(TEXTS),
        answer=["5"] * len(TEXTS),
        level=[1] * len(TEXTS),
        trainer_state=object(),
        log_extra=lambda column, values: None,
        log_metric=metrics.__setitem__,
    )
    assert rewards == REWARDS
    assert metrics["verdicts/correct"] == pytest.approx(0.4)
    assert metrics["verdicts/no_boxed"] == pytest.approx(0.4)
    assert sum(metrics.values()) == pytest.approx(1)


def test_the_end_token_tells_truncated_completions():
    reward = MathVerifyReward(eos_token_ids=[0])
    judgements = reward.judge(["5", "5", r"\boxed{5}", "5"], ["5"] * 4, [[7, 0], [7, 8], [7, 8], []])
    assert [judgement.verdict for judgement in judgements] == ["no_boxed", "truncated", "correct", "truncated"]


def test_it_can_be_sent_to_another_process():
    reward = pickle.loads(pickle.dumps(MathVerifyReward(workers=1, eos_token_ids={3})))
    assert reward(completions=[r"\boxed{5}"], answer=["5"]) == [1.0]
    assert reward.__name__ == "math_verify_reward"


def test_as_many_answers_as_completions():
    with pytest.raises(ValueError, match="shorter"):
        math_verify_reward(completions=["5", "5"], answer=["5"])


@pytest.mark.parametrize(
    "completion",
    ["", [], [{"role": "assistant"}], [{"role": "assistant", "content": None}], [{"content": [{"text": "5"}]}]],
)
def test_a_completion_without_text_is_empty(completion):
    assert completion_text(completion) == ""


def test_no_completions():
    assert math_verify_reward(completions=[], answer=[]) == []
