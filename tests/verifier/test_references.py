"""Every reference answer of MATH, MATH-500 and GSM8K, and recorded completions with their publisher's labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from g2d.verifier import Verification, Verifier, last_boxed


def rows(path: Path) -> Iterator[dict]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


@pytest.fixture(scope="module")
def verifier():
    with Verifier(2) as verifier:
        yield verifier


def failures(judgements: list[Verification]) -> list[Verification]:
    return [judgement for judgement in judgements if judgement.verdict != "correct"]


def test_math_solutions_verify_against_their_own_answer(verifier, real_data):
    solutions = [row["solution"] for row in rows(real_data / "math" / "train.jsonl")]
    judgements = verifier.verify([(last_boxed(solution), solution) for solution in solutions])
    assert len(judgements) == 7500
    # Two published solutions end in an empty box.
    assert [judgement.extracted_answer for judgement in failures(judgements)] == ["", ""]


def test_math_solutions_cut_before_their_answer_are_never_correct(verifier, real_data):
    """Math-Verify's defaults call 11.5 % of these correct."""
    items = []
    for row in rows(real_data / "math" / "train.jsonl"):
        solution = row["solution"]
        answer = last_boxed(solution)
        start = max(solution.rfind(r"\boxed"), solution.rfind(r"\fbox"))
        items += [(answer, solution[: start + cut]) for cut in (7 + len(answer) // 2, 6)]
    judgements = verifier.verify(items, ["length"] * len(items))
    assert {judgement.verdict for judgement in judgements} == {"truncated"}


@pytest.mark.parametrize("written", ["{}", "{}.", r"\boxed{{{}}}", "{{{}}}"])
def test_math500_references_verify_against_themselves_and_no_other(verifier, real_data, written):
    references = list(dict.fromkeys(row["answer"] for row in rows(real_data / "math500" / "test.jsonl")))
    judgements = verifier.verify([(reference, rf"\boxed{{{written.format(reference)}}}") for reference in references])
    assert [judgement.extracted_answer for judgement in judgements if not judgement.reward] == []
    assert written != "{}" or not failures(judgements)
    neighbours = zip(references, references[1:] + references[:1], strict=True)
    judgements = verifier.verify([(a, rf"\boxed{{{written.format(b)}}}") for a, b in neighbours])
    assert [judgement.extracted_answer for judgement in judgements if judgement.reward] == []


@pytest.mark.parametrize("part", ["train", "test"])
def test_gsm8k_references_verify_against_themselves(verifier, real_data, part):
    references = [row["answer"].rpartition("####")[2].strip() for row in rows(real_data / "gsm8k" / f"{part}.jsonl")]
    assert not failures(verifier.verify([(reference, rf"So $\boxed{{{reference}}}$.") for reference in references]))


def test_publisher_labels_of_recorded_completions(verifier, real_data):
    """Four models' completions of GSM8K's test set end in `A: 42`; boxed, our verdict is the publisher's label."""
    items, labels = [], []
    for row in rows(real_data / "gsm8k" / "example_model_solutions.jsonl"):
        reference = row["ground_truth"].rpartition("A: ")[2]
        for recorded in row.values():
            if isinstance(recorded, dict):
                completion = re.sub(r"(?m)^A: *(.*?)\s*\Z", r"A: $\\boxed{\1}$", recorded["solution"])
                items.append((reference, completion))
                labels.append(recorded["is_correct"])
    judgements = verifier.verify(items)
    assert len(labels) == 4 * 1319
    assert [judgement.reward == 1 for judgement in judgements] == labels
