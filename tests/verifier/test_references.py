"""Every reference answer of MATH, MATH-500 and GSM8K, and recorded completions with their publisher's labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from g2d.verifier import Verification, Verifier, last_boxed

from .judging import boxed, verdicts_of


def rows(path: Path) -> Iterator[dict]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


@pytest.fixture(scope="module")
def verifier():
    with Verifier(2) as verifier:
        yield verifier


def answers(judgements: list[Verification], *, correct: bool) -> list[str | None]:
    """Return the answers that were judged so."""
    return [judgement.extracted_answer for judgement in judgements if (judgement.verdict == "correct") is correct]


def test_math_solutions_verify_against_their_own_answer(verifier, real_data):
    solutions = [row["solution"] for row in rows(real_data / "math" / "train.jsonl")]
    judgements = verifier.verify([(last_boxed(solution), solution) for solution in solutions])
    assert len(judgements) == 7500
    # Two published solutions end in an empty box.
    assert answers(judgements, correct=False) == ["", ""]


def test_math_solutions_cut_before_their_answer_are_never_correct(verifier, real_data):
    """Math-Verify's defaults call 11.5 % of these correct."""
    items = []
    for row in rows(real_data / "math" / "train.jsonl"):
        solution = row["solution"]
        answer = last_boxed(solution)
        start = max(solution.rfind(r"\boxed"), solution.rfind(r"\fbox"))
        items.append((answer, solution[: start + 7 + len(answer) // 2]))
        items.append((answer, solution[: start + 6]))
    assert set(verdicts_of(verifier.verify(items, ["length"] * len(items)))) == {"truncated"}


@pytest.mark.parametrize("written", ["{}", "{}.", r"\boxed{{{}}}", "{{{}}}"])
def test_math500_references_verify_against_themselves_and_no_other(verifier, real_data, written):
    references = list(dict.fromkeys(row["answer"] for row in rows(real_data / "math500" / "test.jsonl")))
    same, other = [], []
    for i, reference in enumerate(references):
        same.append(boxed(reference, written.format(reference)))
        other.append(boxed(references[i - 1], written.format(reference)))
    assert answers(verifier.verify(same), correct=False) == []
    assert answers(verifier.verify(other), correct=True) == []


@pytest.mark.parametrize("part", ["train", "test"])
def test_gsm8k_references_verify_against_themselves(verifier, real_data, part):
    items = []
    for row in rows(real_data / "gsm8k" / f"{part}.jsonl"):
        reference = row["answer"].rpartition("####")[2].strip()
        items.append(boxed(reference, reference))
    assert set(verdicts_of(verifier.verify(items))) == {"correct"}


def test_publisher_labels_of_recorded_completions(verifier, real_data):
    """Four models' completions of GSM8K's test set end in `A: 42`; boxed, our verdict is the publisher's label."""
    items: list[tuple[str, str]] = []
    labels = []
    for row in rows(real_data / "gsm8k" / "example_model_solutions.jsonl"):
        reference = row["ground_truth"].rpartition("A: ")[2]
        for recorded in row.values():
            if isinstance(recorded, dict):
                completion = re.sub(r"(?m)^A: *(.*?)\s*\Z", r"A: $\\boxed{\1}$", recorded["solution"])
                items.append((reference, completion))
                labels.append(recorded["is_correct"])
    assert len(labels) == 4 * 1319
    assert [verdict == "correct" for verdict in verdicts_of(verifier.verify(items))] == labels
