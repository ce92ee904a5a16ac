"""The laws of a batch, and the rules that decide before anything is parsed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.verifier import Limits, Verifier, verify_batch
from g2d.verifier.pool import Pool
from g2d.verifier.symbolic import judge

from .answers import CASES
from .judging import boxed, verdicts_of

ITEMS = [(case.reference, case.completion) for case in CASES[::7]]


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
    too_long = ("5", "x" * 100 + r"\boxed{5}")
    beyond = [too_long, boxed("5", "5" * 21), boxed("5", "[({(5)})]"), boxed("5" * 21, "5")]
    within = [boxed("5", "({5})"), boxed("5", "(1)+(1)+[1]+(2)"), boxed("[1,2)", "[1,2)")]
    with Verifier(1, limits) as verifier:
        judgements = verifier.verify(beyond + within)
    assert verdicts_of(judgements) == ["limit"] * 4 + ["correct"] * 3
    assert judgements[0].extracted_answer is None
    assert judgements[1].extracted_answer == "5" * 20


def test_a_batch_is_its_items_one_by_one_in_any_order(verifier):
    """New workers without a cache: sympy has caches."""
    batch = verifier.verify(ITEMS)
    with Verifier(1) as other:
        for item, judgement in zip(ITEMS[::-1], batch[::-1], strict=True):
            assert other.verify([item]) == [judgement]


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


@pytest.fixture
def asked(monkeypatch):
    """Pairs that the workers get."""
    pairs_of_workers = []
    replies = Pool.replies

    def recorded(pool, pairs):
        pairs_of_workers.extend(pairs)
        return replies(pool, pairs)

    monkeypatch.setattr(Pool, "replies", recorded)
    return pairs_of_workers


def test_equal_questions_are_judged_once(asked):
    with Verifier(1) as verifier:
        first = verifier.verify([("1/2", r"\boxed{0.5}"), ("1/2", r"again \boxed{0.5}"), ("1/2", r"\boxed{0.6}")] * 3)
        assert asked == [("1/2", "0.5"), ("1/2", "0.6")]
        assert verifier.verify([("1/2", r"\boxed{0.5}")]) == first[:1]
        assert len(asked) == 2


def test_the_cache_is_bounded(asked, monkeypatch):
    monkeypatch.setattr("g2d.verifier.verifier.CACHE_SIZE", 2)
    with Verifier(1) as verifier:
        verifier.verify([boxed("1/2", "0.5"), boxed("1/2", "0.6"), boxed("1/2", "0.7")])
        verifier.verify([boxed("1/2", "0.6"), boxed("1/2", "0.7")])
        assert len(asked) == 3
        verifier.verify([boxed("1/2", "0.5")])  # the oldest was dropped
        assert len(asked) == 4


def test_integers_need_no_worker(asked):
    with Verifier(1) as verifier:
        assert verdicts_of(verifier.verify([boxed("1", "1"), boxed("1", "2")])) == ["correct", "incorrect"]
    assert asked == []


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
