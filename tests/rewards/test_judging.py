"""Numbers of rewards that cannot be trained on: a status and a count, never a silent 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest

from g2d.problems import Problem
from g2d.rewards import registry
from g2d.rewards.registry import judge, require_numbers
from g2d.rewards.reward import Judgement, Reward, VerifiedCompletion
from g2d.settings import Section, key
from g2d.verifier import Verification
from tests.rewards.models import CONTEXT, rewards_of

Judge = Callable[..., list[Judgement]]


class Odd(Section):
    """Whatever a test needs."""

    reward: Literal["odd"] = key("odd", "Odd.")


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Judges groups of two with a reward that is given as a function of the completions."""

    def judged(score: Callable[[Sequence[VerifiedCompletion]], Any], texts: Sequence[str], binary: bool = False) -> Any:
        reward = Reward("odd", 1, Odd, lambda settings, completions, context: score(completions), str, binary=binary)
        monkeypatch.setitem(registry.REWARDS, "odd", reward)
        problem = Problem("p", "?", "5", 1, None, "a test")
        completions = []
        for i, text in enumerate(texts):
            verification = Verification("incorrect", "1")
            completions.append(VerifiedCompletion(problem, f"g{i // 2}", i % 2, text, verification))
        return judge(Odd(), completions, CONTEXT)

    return judged


def numbers(completions: Sequence[VerifiedCompletion]) -> list[Judgement]:
    return [Judgement(float(completion.text)) for completion in completions]


def test_a_reward_that_is_no_usable_number_has_a_status(odd: Judge) -> None:
    values = [1.5, -1e18, math.nan, math.inf, -math.inf, None, 1e308]  # the last: more than a trainer's float32 holds
    judgements = odd(lambda completions: [*map(Judgement, values)], [""] * len(values))
    assert rewards_of(judgements) == [1.5, -1e18, *[None] * 5]
    assert [judgement.status for judgement in judgements] == ["judged"] * 2 + ["not_finite"] * 5


def test_a_binary_reward_gives_0_or_1(odd: Judge) -> None:
    assert rewards_of(odd(numbers, ["1", "0"], binary=True)) == [1, 0]
    first, second = odd(numbers, ["0.5", "1"], binary=True)
    assert (first.reward, first.status, second.reward) == (None, "error", 1)
    assert first.details == {"error": "0.5 of a binary reward: remove binary, or return 0 or 1"}


def test_each_problem_is_judged_by_the_reward_of_its_kind(odd: Judge) -> None:
    odd(lambda completions: [Judgement(0.25 * len(completions))] * len(completions), ["", ""])  # registers it
    both = registry.ByKind.model_construct(verifiable=registry.TRUTH, open_ended=Odd())
    answer = VerifiedCompletion(Problem("v", "?", "5", 1, None, ""), "v", 0, "", Verification("correct", None))
    reply = VerifiedCompletion(Problem("o", "?", None, None, None, ""), "o", 0, "", Verification("no_reference", None))
    completions = [answer, reply, replace(answer, sample=1), replace(reply, sample=1)]
    assert rewards_of(judge(both, completions, CONTEXT)) == [1, 0.5, 1, 0.5]


def test_the_last_error_of_a_reward_is_in_the_message(odd: Judge) -> None:
    failed = Judgement(None, "error", {"error": "KeyError: 'x'\x1b[2J"})
    odd(lambda completions: [failed] * len(completions), ["", ""])
    for status in ("error", "without"):
        with pytest.raises(
            RuntimeError, match=rf"mine: no finite number .* \(2 {status}; KeyError: 'x'[^\x1b]*\): mend"
        ):
            require_numbers({status: 2}, "mine")


def test_a_file_of_rollouts_without_any_number_ends_the_job(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match=r"mine: no finite number for any completion \(3 late\): mend the reward"):
        require_numbers({"late": 3, "judged": 0}, "mine")
    require_numbers({"judged": 4}, "mine")
    assert caplog.text == ""
    require_numbers({"judged": 2, "late": 2}, "mine")
    assert "left out (2 late)" in caplog.text
