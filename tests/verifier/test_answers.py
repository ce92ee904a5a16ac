"""Math-Verify behind its guards, on answers of every kind that MATH has, and the second opinion beside it."""

from __future__ import annotations

import pytest

from g2d.verifier import Judgement, verify_batch
from g2d.verifier.second_opinion import second_opinion

from .answers import CASES, KNOWN_WRONG

TABLE = [(kind, *case) for kind, cases in CASES.items() for case in cases]


SILENT = ("tails that change the value",)  # the second opinion drops known units only


@pytest.fixture(scope="module")
def judged() -> dict[tuple[str, str], Judgement]:
    pairs = [case[1:3] for case in TABLE] + [case[:2] for case in KNOWN_WRONG]
    judgements = verify_batch([(reference, rf"Hence $\boxed{{{answer}}}$.") for reference, answer in pairs], workers=2)
    return dict(zip(pairs, judgements, strict=True))


def test_the_table_is_large_and_repeats_nothing():
    pairs = [case[1:3] for case in TABLE]
    assert len(pairs) >= 150
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(("kind", "reference", "answer", "equal"), TABLE)
def test_verdict(kind, reference, answer, equal, judged):
    assert (judged[reference, answer].verdict == "correct") is equal, judged[reference, answer]


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [pytest.param(*case, marks=pytest.mark.xfail(strict=True, reason=reason)) for *case, reason in KNOWN_WRONG],
)
def test_known_wrong(reference, answer, equal, judged):
    assert (judged[reference, answer].verdict == "correct") is equal


@pytest.mark.parametrize(("kind", "reference", "answer", "equal"), TABLE)
def test_second_opinion_is_right_or_silent(kind, reference, answer, equal):
    assert second_opinion(reference, answer) in (equal, None)


def test_second_opinion_speaks_about_many_answers():
    opinions = [second_opinion(reference, answer) for kind, reference, answer, _ in TABLE if kind not in SILENT]
    assert opinions.count(None) < 0.6 * len(opinions)


@pytest.mark.parametrize(
    ("reference", "answer"), [(r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"), (r"\mbox{four}", "4")]
)
def test_second_opinion_notices_wrong_verdicts(reference, answer, judged):
    assert judged[reference, answer].disputed
