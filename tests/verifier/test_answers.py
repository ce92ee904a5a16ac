"""Math-Verify behind its guards, on answers of every kind that MATH has, and the second opinion beside it."""

from __future__ import annotations

import pytest

from g2d.verifier import Judgement, verify_batch
from g2d.verifier.second_opinion import second_opinion

from .answers import CASES, KNOWN_WRONG

TABLE = [(kind, *case) for kind, cases in CASES.items() for case in cases]
# The second opinion drops known units only, and reads neither other notations nor conditions.
SILENT = (
    *("tails that change the value", "characters", "typesetting", "ordinals and bare units", "program notation"),
    *("a choice with its text", "conditions behind the answer", "bases in brackets", "wrong and rewarded"),
)


@pytest.fixture(scope="module")
def judged() -> dict[tuple[str, str], Judgement]:
    pairs = [case[1:3] for case in TABLE] + [case[:2] for case in KNOWN_WRONG]
    assert len(set(pairs)) == len(pairs)
    judgements = verify_batch([(reference, rf"Hence $\boxed{{{answer}}}$.") for reference, answer in pairs], workers=2)
    return dict(zip(pairs, judgements, strict=True))


def test_every_verdict_is_right(judged):
    assert [case for case in TABLE if (judged[case[1:3]].verdict == "correct") is not case[3]] == []


def test_known_wrong_verdicts_are_still_wrong(judged):
    assert [case for case in KNOWN_WRONG if (judged[case[:2]].verdict == "correct") is case[2]] == []


def test_the_second_opinion_is_right_or_silent_and_speaks_about_many_answers():
    opinions = [second_opinion(reference, answer) for _, reference, answer, _ in TABLE]
    assert [case for case, opinion in zip(TABLE, opinions, strict=True) if opinion not in (case[3], None)] == []
    silent = [opinion is None for case, opinion in zip(TABLE, opinions, strict=True) if case[0] not in SILENT]
    assert sum(silent) < 0.65 * len(silent)


@pytest.mark.parametrize(
    ("reference", "answer"), [(r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"), (r"\mbox{four}", "4")]
)
def test_the_second_opinion_notices_wrong_verdicts(reference, answer, judged):
    assert judged[reference, answer].disputed
