"""Math-Verify behind its guards, on answers of every kind that MATH has."""

from __future__ import annotations

import pytest

from g2d.verifier import Verification, verify_batch

from .answers import CASES, KNOWN_WRONG

TABLE = [(kind, *case) for kind, cases in CASES.items() for case in cases]


@pytest.fixture(scope="module")
def judged() -> dict[tuple[str, str], Verification]:
    pairs = [case[1:3] for case in TABLE] + [case[:2] for case in KNOWN_WRONG]
    assert len(set(pairs)) == len(pairs)
    judgements = verify_batch([(reference, rf"Hence $\boxed{{{answer}}}$.") for reference, answer in pairs], workers=2)
    return dict(zip(pairs, judgements, strict=True))


def test_every_verdict_is_right(judged):
    assert [case for case in TABLE if (judged[case[1:3]].verdict == "correct") is not case[3]] == []


def test_known_wrong_verdicts_are_still_wrong(judged):
    assert [case for case in KNOWN_WRONG if (judged[case[:2]].verdict == "correct") is case[2]] == []
