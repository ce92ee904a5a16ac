"""No completion hangs, crashes or fools the verifier, and what comes after a hostile one is judged as ever."""

from __future__ import annotations

import pytest

from g2d.verifier import Limits, Verification, Verifier

from .hostile import HOSTILE

REFERENCE = "5"
GOOD = (r"\frac{1}{2}", r"\boxed{0.5}")
LIMITS = Limits(deadline_s=0.6)


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> dict[str, Verification]:
    """All of them in one batch, with a good item behind each."""
    items = [item for completion, _ in HOSTILE.values() for item in ((REFERENCE, completion), GOOD)]
    with pytest.MonkeyPatch.context() as patch, Verifier(2, LIMITS) as verifier:
        patch.chdir(tmp_path_factory.mktemp("work"))
        judgements = verifier.verify(items)
    assert {judgement.verdict for judgement in judgements[1::2]} == {"correct"}
    return dict(zip(HOSTILE, judgements[::2], strict=True))


def test_verdicts_are_as_expected_and_records_small(judged):
    assert {name: judged[name] for name, (_, verdicts) in HOSTILE.items() if judged[name].verdict not in verdicts} == {}
    assert max(len(judgement.extracted_answer or "") for judgement in judged.values()) <= LIMITS.max_answer_chars


def test_a_worker_survives_or_is_replaced():
    """Good items between bad ones, one worker: every death is followed by a right verdict."""
    bad = [
        (REFERENCE, HOSTILE[name][0]) for name in ("tower of powers", "huge factorial", "empty box", "lone surrogates")
    ]
    # References differ, so that no answer comes from the cache.
    good = [(str(i) + "/7", rf"\boxed{{\frac{{{i}}}{{7}}}}") for i in range(1, 5)]
    with Verifier(1, Limits(deadline_s=0.5)) as verifier:
        judgements = verifier.verify([item for pair in zip(bad, good, strict=True) for item in pair])
    assert [judgement.verdict for judgement in judgements[1::2]] == ["correct"] * 4
    assert [judgement.verdict for judgement in judgements[:4:2]] == ["timeout", "timeout"]


def test_nothing_a_completion_says_is_executed(judged, tmp_path_factory):
    assert not list(tmp_path_factory.getbasetemp().rglob("pwned"))


def test_hostile_references_are_bounded_too():
    references = ["9^{9^{9^{9}}}", "{" * 1_000, "5" * 10_000, "", "\x00", "\ud800", r"\boxed{5", "}{"]
    with Verifier(2, LIMITS) as verifier:
        judgements = verifier.verify([(reference, r"\boxed{5}") for reference in references])
    assert all(judgement.reward == 0 for judgement in judgements), judgements
