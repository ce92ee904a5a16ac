"""No completion hangs, crashes or fools the verifier, and what comes after a hostile one is judged as ever."""

from __future__ import annotations

import pytest

from g2d.verifier import Limits, Verification, Verifier

from .hostile import HOSTILE
from .judging import boxed, verdicts_of

REFERENCE = "5"
GOOD = (r"\frac{1}{2}", r"\boxed{0.5}")
LIMITS = Limits(deadline_s=0.6)


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> dict[str, Verification]:
    """All of them in one batch, with a good item behind each."""
    items = []
    for completion, _ in HOSTILE.values():
        items += [(REFERENCE, completion), GOOD]
    with pytest.MonkeyPatch.context() as patch, Verifier(2, LIMITS) as verifier:
        patch.chdir(tmp_path_factory.mktemp("work"))
        judgements = verifier.verify(items)
    assert set(verdicts_of(judgements[1::2])) == {"correct"}
    return dict(zip(HOSTILE, judgements[::2], strict=True))


def test_verdicts_are_as_expected_and_records_small(judged):
    for name, (_, expected) in HOSTILE.items():
        assert judged[name].verdict in expected, name
        assert len(judged[name].extracted_answer or "") <= LIMITS.max_answer_chars, name


def test_a_worker_survives_or_is_replaced():
    """Good items between bad ones, one worker: every death is followed by a right verdict."""
    items = []
    for i, name in enumerate(["tower of powers", "huge factorial", "empty box", "lone surrogates"]):
        items.append((REFERENCE, HOSTILE[name][0]))
        items.append(boxed(f"{i}/7", rf"\frac{{{i}}}{{7}}"))  # references differ: no answer comes from the cache
    with Verifier(1, Limits(deadline_s=0.5)) as verifier:
        verdicts = verdicts_of(verifier.verify(items))
    assert verdicts[1::2] == ["correct"] * 4
    assert verdicts[:4:2] == ["timeout", "timeout"]


def test_nothing_a_completion_says_is_executed(judged, tmp_path_factory):
    assert not list(tmp_path_factory.getbasetemp().rglob("pwned"))


def test_hostile_references_are_bounded_too():
    references = ["9^{9^{9^{9}}}", "{" * 1_000, "5" * 10_000, "", "\x00", "\ud800", r"\boxed{5", "}{"]
    with Verifier(2, LIMITS) as verifier:
        verdicts = verdicts_of(verifier.verify([boxed(reference, "5") for reference in references]))
    assert "correct" not in verdicts
