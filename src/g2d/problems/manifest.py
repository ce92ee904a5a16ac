"""The manifest of a set of problems. It lists reference answers that the verifier rejects; no problem is dropped."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict, TypeVar

from g2d.jobs.files import sha256
from g2d.problems.problem import Problem, to_jsonl
from g2d.problems.problem_keys import LocalProblems, ProblemSource
from g2d.verifier.verdict import Verification

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
    source_sha256: NotRequired[str]  # of a local file


def manifest(name: str, source: ProblemSource, problems: Sequence[Problem], verify: Verify | None) -> ProblemsManifest:
    """Return the manifest; without `verify`, references are not checked."""
    record: ProblemsManifest = {
        "name": name,
        "source": source.model_dump(),
        "sha256": hashlib.sha256(to_jsonl(problems).encode()).hexdigest(),
        "n": len(problems),
        "levels": _counts([problem.level for problem in problems]),
        "subjects": _counts([problem.subject for problem in problems]),
        "duplicate_prompts": len(problems) - len({problem.prompt for problem in problems}),
        "reference_failures": [] if verify is None else reference_failures(problems, verify),
    }
    if isinstance(source, LocalProblems):
        record["source_sha256"] = sha256(source.path)
    return record


def reference_failures(problems: Sequence[Problem], verify: Verify) -> list[ReferenceFailure]:
    """Judge each reference answer as if it were a completion; return those that are not right."""
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
