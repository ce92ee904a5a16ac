"""Rewards that misbehave: a status and a count, never a silent 0."""

from __future__ import annotations

import linecache
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from g2d.problems import Problem
from g2d.rewards import catalogue, judging
from g2d.rewards.foreign_code import LateError, deadline
from g2d.rewards.judging import judge
from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, key
from g2d.verifier import Judgement as Verified

CONTEXT = Context(None, 0, "training")  # type: ignore[arg-type]
Judge = Callable[..., list[Judgement]]


class Odd(Section):
    """Whatever a test needs."""

    reward: Literal["odd"] = key("odd", "Odd.")


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Judges two groups of two with a reward that is given as a function of an attempt's text."""

    def judged(score: Callable[[Sequence[Attempt]], Any], texts: Sequence[str], binary: bool = False) -> Any:
        reward = Reward("odd", 1, Odd, lambda settings, attempts, context: score(attempts), str, binary=binary)
        monkeypatch.setitem(catalogue.REWARDS, "odd", reward)
        problem = Problem("p", "?", "5", 1, None, "a test")
        attempts = [
            Attempt(problem, f"g{i // 2}", i % 2, text, Verified("incorrect", "1")) for i, text in enumerate(texts)
        ]
        return judge(Odd(), attempts, CONTEXT)

    return judged


def numbers(attempts: Sequence[Attempt]) -> list[Judgement]:
    return [Judgement(float(attempt.text)) for attempt in attempts]


def test_a_reward_that_is_no_usable_number_has_a_status(odd: Judge) -> None:
    values: list[Any] = [1.5, -1e18, math.nan, math.inf, -math.inf, None, "five", 10**400]
    values.append(1e308)  # more than a trainer's float32 holds
    texts = [str(i) for i in range(len(values))]
    judgements = odd(lambda attempts: [Judgement(values[int(attempt.text)]) for attempt in attempts], texts)
    assert [judgement.reward for judgement in judgements] == [1.5, -1e18, *[None] * 7]
    assert [judgement.status for judgement in judgements] == ["judged"] * 2 + ["not_finite"] * 7


def test_a_completion_that_breaks_the_reward_costs_only_its_group(odd: Judge) -> None:
    judgements = odd(numbers, ["1", "2", "hostile", "4"])
    assert [judgement.reward for judgement in judgements] == [1, 2, None, None]
    assert [judgement.status for judgement in judgements] == ["judged", "judged", "error", "error"]
    assert judgements[2].details == {"error": "ValueError"}


NO_JSON: list[Any] = [{"seen": {1, 2}}, {"score": math.nan}, {1j: "x"}, 5]


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda attempts: int("x"), "ValueError"),
        (lambda attempts: sys.exit(0), r"it called sys\.exit\(0\)"),
        (lambda attempts: os._exit(3), r"it called os\._exit\(3\)"),
        (lambda attempts: numbers(attempts)[:1], "1 judgements for 2 completions"),
        (lambda attempts: [1.0] * len(attempts), "or not Judgements"),
        *((lambda attempts, details=details: [Judgement(1.0, details=details)] * 2, "no JSON") for details in NO_JSON),
    ],
)
def test_a_reward_that_always_fails_ends_the_job(odd: Judge, score: Any, message: str) -> None:
    leave = os._exit
    with pytest.raises(RuntimeError, match=f"reward odd fails on everything: .*{message}"):
        odd(score, ["1", "2"])
    assert os._exit is leave


def test_a_child_process_of_a_reward_can_exit(odd: Judge) -> None:
    def score(attempts: Sequence[Attempt]) -> list[Judgement]:
        if (child := os.fork()) == 0:
            os._exit(7)
        return [Judgement(float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))] * len(attempts)

    assert {judgement.reward for judgement in odd(score, ["1", "2"])} == {7}


def test_a_binary_reward_gives_0_or_1(odd: Judge) -> None:
    assert [judgement.reward for judgement in odd(numbers, ["1", "0"], binary=True)] == [1, 0]
    with pytest.raises(RuntimeError, match=r"a binary reward gave 0\.5"):
        odd(numbers, ["0.5", "0.5"], binary=True)


def test_each_problem_is_judged_by_the_reward_of_its_kind(odd: Judge) -> None:
    odd(lambda attempts: [Judgement(0.25 * len(attempts)) for _ in attempts], ["", ""])  # registers it
    both = catalogue.ByKind.model_construct(verifiable=catalogue.TRUTH, open_ended=Odd())
    with_answer, without = Problem("v", "?", "5", 1, None, ""), Problem("o", "?", None, None, None, "")
    attempts = [
        Attempt(problem, problem.problem_id, sample, "", Verified(verdict, None))
        for sample in range(2)
        for problem, verdict in ((with_answer, "correct"), (without, "no_reference"))
    ]
    assert [judgement.reward for judgement in judge(both, attempts, CONTEXT)] == [1, 0.5, 1, 0.5]


def hanging(text: str) -> Callable[[Sequence[Attempt]], list[Judgement]]:
    """Return a reward that hangs on completions with this text, and whose time limit is over immediately."""

    def score(attempts: Sequence[Attempt]) -> list[Judgement]:
        while any(attempt.text == text for attempt in attempts):
            try:
                signal.raise_signal(signal.SIGALRM)
                time.sleep(3600)
            except Exception:  # like code around a network call
                continue
        return numbers(attempts)

    return score


def test_a_hanging_reward_is_interrupted_repeatedly() -> None:
    with pytest.raises(LateError), deadline(0.01):
        try:
            time.sleep(3600)
        except LateError:
            time.sleep(3600)
    with deadline(3600):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_no_timer_is_left_if_it_fires_at_the_end() -> None:
    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name != "deadline":
            return None
        if event == "line" and linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == "ringing = False":
            sys.settrace(None)
            signal.raise_signal(signal.SIGALRM)
        return trace

    before, tracing = signal.getsignal(signal.SIGALRM), sys.gettrace()
    try:
        with pytest.raises(LateError), deadline(3600):
            sys.settrace(trace)
    finally:
        sys.settrace(tracing)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.fixture
def limited(odd: Judge, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """`odd` for a plugin with a time limit that only hanging calls exceed."""

    def judged(score: Callable[[Sequence[Attempt]], Any], texts: Sequence[str]) -> Any:
        monkeypatch.setattr(judging, "reward_of", lambda settings: (catalogue.REWARDS["odd"], settings))
        monkeypatch.setattr(judging, "PythonReward", Odd)
        monkeypatch.setattr(Odd, "time_limit", 3600.0, raising=False)
        return odd(score, texts)

    return judged


def test_a_hanging_reward_costs_only_its_group(limited: Judge) -> None:
    before = signal.getsignal(signal.SIGALRM)
    judgements = limited(hanging("3"), ["1", "2", "3", "4", "5", "6"])
    assert [judgement.reward for judgement in judgements] == [1, 2, None, None, 5, 6]
    assert [judgement.status for judgement in judgements[2:4]] == ["late", "late"]
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_reward_that_always_hangs_ends_the_job(limited: Judge) -> None:
    with pytest.raises(RuntimeError, match=r"reward odd fails on everything: no answer in 3600 s"):
        limited(hanging("1"), ["1", "2", "1", "2"])


def test_a_reward_with_a_time_limit_is_called_for_whole_groups(limited: Judge) -> None:
    groups: list[int] = []

    def score(attempts: Sequence[Attempt]) -> list[Judgement]:
        groups.append(len({attempt.group for attempt in attempts}))
        assert len(attempts) == 2 * groups[-1]
        return numbers(attempts)

    texts = [str(i) for i in range(2 * 65)]
    assert [judgement.reward for judgement in limited(score, texts)] == [float(text) for text in texts]
    assert sorted(groups) == [21, 22, 22]  # no part so small that its failure is everything's
