"""Audit of problems: a manifest with the reference answers that the verifier rejects, and train/test leakage.

Leakage is a benchmark problem in the training pool, also in another layout; paraphrases are not found. No problem is
dropped.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NotRequired, TypedDict, TypeVar

from g2d.jobs.files import sha256
from g2d.problems.problem import Problem, to_jsonl
from g2d.problems.problem_keys import LocalProblems, ProblemSource
from g2d.problems.text_key import text_key
from g2d.verifier.verifier import Verification

Verify = Callable[[Sequence[tuple[str | None, str]]], Sequence[Verification]]
Label = TypeVar("Label", int, str)


class ReferenceFailure(TypedDict):
    problem_id: str
    answer: str
    verdict: str


class ProblemsManifest(TypedDict):
    name: str
    source: dict[str, object]  # its keys
    sha256: str
    n: int
    levels: dict[str, int]  # numbers of problems
    subjects: dict[str, int]
    duplicate_prompts: int
    reference_failures: list[ReferenceFailure]
    source_sha256: NotRequired[str]  # digest of a local file


def manifest(name: str, source: ProblemSource, problems: Sequence[Problem], verify: Verify | None) -> ProblemsManifest:
    """Return the manifest; without `verify`, references are not checked."""
    record: ProblemsManifest = {
        "name": name,
        "source": source.model_dump(),
        "sha256": hashlib.sha256(to_jsonl(problems).encode()).hexdigest(),
        "n": len(problems),
        "levels": _counts([problem.level for problem in problems]),
        "subjects": _counts([problem.subject for problem in problems]),
        "duplicate_prompts": len(problems) - len({text_key(problem.prompt) for problem in problems}),
        "reference_failures": [] if verify is None else reference_failures(problems, verify),
    }
    if isinstance(source, LocalProblems):
        record["source_sha256"] = sha256(source.path)
    return record


def reference_failures(problems: Sequence[Problem], verify: Verify) -> list[ReferenceFailure]:
    """Judge each reference answer as if it were a completion; return the wrong ones."""
    answered = [problem for problem in problems if problem.answer is not None]
    verifications = verify([(problem.answer, f"\\boxed{{{problem.answer}}}") for problem in answered])
    failures: list[ReferenceFailure] = []
    for problem, verification in zip(answered, verifications, strict=True):
        if verification.verdict != "correct":
            failures.append(
                {"problem_id": problem.problem_id, "answer": str(problem.answer), "verdict": verification.verdict}
            )
    return failures


def _counts(labels: Sequence[Label | None]) -> dict[str, int]:
    known = [label for label in labels if label is not None]
    counts = Counter(known)
    named = {str(label): counts[label] for label in sorted(counts)}
    if len(known) < len(labels):
        named["unknown"] = len(labels) - len(known)
    return named


def find_leaks(train: Sequence[Problem], test: Sequence[Problem]) -> dict[str, str]:
    """Return the ids of test problems that are in the training set, with the first id they have there."""
    train_ids: dict[str, str] = {}
    for problem in train:
        train_ids.setdefault(text_key(problem.prompt), problem.problem_id)
    leaks = {}
    for problem in test:
        train_id = train_ids.get(text_key(problem.prompt))
        if train_id is not None:
            leaks[problem.problem_id] = train_id
    return leaks


def assert_no_leakage(
    train: Sequence[Problem], test: Sequence[Problem], place: str, among: str = "the training pool"
) -> None:
    """Raise a ValueError if problems of the benchmark at the key `place` are in `among`, a name for `train`."""
    leaks = find_leaks(train, test)
    if not leaks:
        return
    listed = [f"{test_id} = {train_id}" for test_id, train_id in islice(leaks.items(), 3)]
    if len(leaks) > len(listed):
        listed.append("...")
    raise ValueError(
        f"{place}: {len(leaks)} of {len(test)} problems are in {among} ({', '.join(listed)}; its id = id there): "
        "remove them there, or choose another split"
    )
