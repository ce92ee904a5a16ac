"""The laws of a batch, and the rules that decide before anything is parsed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.verifier import Limits, Verifier, verify_batch
from g2d.verifier.symbolic import judge

from .answers import CASES

PAIRS = [case[:2] for cases in CASES.values() for case in cases][::7]
ITEMS = [(reference, rf"so $\boxed{{{answer}}}$") for reference, answer in PAIRS]


@pytest.fixture(scope="module")
def verifier():
    with Verifier(2) as verifier:
        yield verifier


@pytest.mark.parametrize(
    ("completion", "finish_reason", "verdict"),
    [
        (r"\boxed{5}", "stop", "correct"),
        (r"\boxed{5}", None, "correct"),
        (r"\boxed{5}", "length", "correct"),  # a truncated solution that reaches its answer counts (paper, section 4.1)
        (r"\boxed{6}", "length", "incorrect"),
        ("5", "stop", "no_boxed"),
        ("5", None, "no_boxed"),
        ("5", "length", "truncated"),
        (r"\boxed{5", "length", "truncated"),
        (r"\boxed{5", "stop", "no_boxed"),
        (r"\boxed{5} \boxed{5", "length", "truncated"),
        (r"\boxed{5} \boxed{5", "stop", "no_boxed"),
        (r"\boxed{}", "stop", "parse_error"),
        (r"\boxed{\frac{}}", "stop", "parse_error"),
        ("", "stop", "no_boxed"),
        ("", "length", "truncated"),
    ],
)
def test_verdicts(verifier, completion, finish_reason, verdict):
    (judgement,) = verifier.verify([("5", completion)], [finish_reason])
    assert judgement.verdict == verdict
    assert judgement.reward == (verdict == "correct")
    assert (judgement.extracted_answer is None) == (verdict in ("no_boxed", "truncated"))


@pytest.mark.parametrize(
    ("completion", "in_thinking", "verdict"),
    [
        (r"<think> Perhaps \boxed{5}? Let me check", False, "unfinished_thinking"),
        (r"Perhaps \boxed{5}? Let me check", True, "unfinished_thinking"),  # `<think>` ends the prompt
        ("<think> Perhaps 5?", False, "unfinished_thinking"),
        (r"<think> Perhaps 5. </think> So \boxed{5}", False, "correct"),
        (r"Perhaps 5. </think> So \boxed{5}", True, "correct"),
        (r"Perhaps 6. </think> So \boxed{6}", True, "incorrect"),
        (r"Perhaps \boxed{5}. </think>", True, "correct"),  # thinking ended, and the box counts as elsewhere
        (r"So \boxed{5}", False, "correct"),
    ],
)
@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_thinking_that_never_ended_has_no_answer(verifier, completion, in_thinking, verdict, finish_reason):
    (judgement,) = verifier.verify([("5", completion)], [finish_reason], in_thinking=[in_thinking])
    assert judgement.verdict == verdict
    assert judgement.reward == (verdict == "correct")
    assert (judgement.extracted_answer is None) == (verdict == "unfinished_thinking")


def test_limits_are_checked_before_parsing():
    limits = Limits(max_completion_chars=100, max_answer_chars=20, max_nesting=3)
    beyond = [
        *(("5", "x" * 100 + r"\boxed{5}"), ("5", rf"\boxed{{{'5' * 21}}}")),
        *(("5", r"\boxed{[({(5)})]}"), ("5" * 21, r"\boxed{5}")),
    ]
    within = [("5", r"\boxed{({5})}"), ("5", r"\boxed{(1)+(1)+[1]+(2)}"), ("[1,2)", r"\boxed{[1,2)}")]
    with Verifier(1, limits) as verifier:
        judgements = verifier.verify(beyond + within)
    assert [judgement.verdict for judgement in judgements] == ["limit"] * 4 + ["correct"] * 3
    assert [judgement.extracted_answer for judgement in judgements[:2]] == [None, "5" * 20]


def test_a_batch_is_its_items_one_by_one_in_any_order(verifier):
    """New workers without a cache: sympy has caches."""
    batch = verifier.verify(ITEMS)
    with Verifier(1) as other:
        assert [other.verify([item])[0] for item in ITEMS[::-1]] == batch[::-1]


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_is_preserved(shuffler: random.Random):
    expected = dict(zip(ITEMS, verify_batch(ITEMS, workers=2), strict=True))
    shuffled = ITEMS * 2
    shuffler.shuffle(shuffled)
    assert verify_batch(shuffled, workers=2) == [expected[item] for item in shuffled]


small_numbers = st.integers(-(10**9), 10**9)


@settings(max_examples=60, deadline=None)
@given(small_numbers, small_numbers | st.none(), st.sampled_from(["", "0", "00"]))
def test_small_integers_are_judged_as_math_verify_would(a, b, zeros):
    answer = str(a if b is None else b)
    answer = "-" + zeros + answer[1:] if answer.startswith("-") else zeros + answer
    (judgement,) = verify_batch([(str(a), rf"\boxed{{{answer}}}")])
    assert judgement.verdict == judge(str(a), answer)


@settings(max_examples=40, deadline=None)
@given(st.integers(-50, 50), st.integers(1, 50), st.integers(-50, 50), st.integers(1, 50))
def test_fractions_are_equal_exactly_if_their_values_are(a, b, c, d):
    (judgement,) = verify_batch([(rf"\frac{{{a}}}{{{b}}}", rf"\boxed{{{c}/{d}}}")])
    assert (judgement.verdict == "correct") == (a * d == b * c)


def test_equal_questions_are_judged_once(monkeypatch):
    with Verifier(1) as verifier:
        judged = []
        ask = verifier._pool.replies
        monkeypatch.setattr(verifier._pool, "replies", lambda pairs: judged.extend(pairs) or ask(pairs))
        first = verifier.verify([("1/2", r"\boxed{0.5}"), ("1/2", r"again \boxed{0.5}"), ("1/2", r"\boxed{0.6}")] * 3)
        assert judged == [("1/2", "0.5"), ("1/2", "0.6")]
        assert verifier.verify([("1/2", r"\boxed{0.5}")]) == first[:1]
        assert len(judged) == 2


def test_the_cache_is_bounded_and_integers_need_no_worker(monkeypatch):
    monkeypatch.setattr("g2d.verifier.verifier.CACHE_SIZE", 5)
    with Verifier(1) as verifier:
        verifier.verify([("1", rf"\boxed{{{i}}}") for i in range(10)])
        assert len(verifier._cache) == 5
        assert not verifier._pool.workers


def test_an_empty_batch(verifier):
    assert verifier.verify([]) == []


def test_finish_reasons_must_match(verifier):
    with pytest.raises(ValueError, match="1 items but 2 finish reasons"):
        verifier.verify([("5", "5")], ["stop", "stop"])
    with pytest.raises(ValueError, match="1 items but 2 values of in_thinking"):
        verifier.verify([("5", "5")], in_thinking=[True, False])


def test_at_least_one_worker():
    with pytest.raises(ValueError, match="at least one"):
        Verifier(0)
