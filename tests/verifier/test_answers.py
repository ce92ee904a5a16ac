"""Math-Verify behind its guards, on answers of every kind that MATH has."""

from __future__ import annotations

from g2d.verifier import verify_batch

from .answers import CASES, KNOWN_WRONG, Case


def judged_right(cases: list[Case]) -> list[Case]:
    """Return the cases with the verdict of a careful grader."""
    assert len({case[:2] for case in cases}) == len(cases)
    judgements = verify_batch([(case.reference, case.completion) for case in cases], workers=2)
    pairs = zip(cases, judgements, strict=True)
    return [case for case, judgement in pairs if (judgement.verdict == "correct") is case.equal]


def test_every_verdict_is_right():
    assert judged_right(CASES) == CASES


def test_known_wrong_verdicts_are_still_wrong():
    assert judged_right(KNOWN_WRONG) == []
