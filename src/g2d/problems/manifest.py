"""The manifest of a set of problems. It lists reference answers that the verifier rejects; no problem is dropped."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from g2d.jobs.files import sha256
from g2d.problems.problem import Problem, to_jsonl
from g2d.problems.problem_keys import LocalProblems, ProblemSource
from g2d.verifier.verdict import Verification

Verify = Callable[[Sequence[tuple[str | None, str]]], Sequence[Verification]]


def manifest(name: str, source: ProblemSource, problems: Sequence[Problem], verify: Verify | None) -> dict[str, Any]:
    """Return the manifest; without `verify`, references are not checked."""
    record: dict[str, Any] = {
        "name": name,
        "source": source.model_dump(),
        "sha256": hashlib.sha256(to_jsonl(problems).encode()).hexdigest(),
        "n": len(problems),
        "levels": _counts(problem.level for problem in problems),
        "subjects": _counts(problem.subject for problem in problems),
        "duplicate_prompts": len(problems) - len({problem.prompt for problem in problems}),
        "reference_failures": [] if verify is None else reference_failures(problems, verify),
    }
    if isinstance(source, LocalProblems):
        record["source_sha256"] = sha256(source.path)
    return record


def reference_failures(problems: Sequence[Problem], verify: Verify) -> list[dict[str, str]]:
    """Judge each reference answer as if it were a completion; return those that are not right."""
    answered = [problem for problem in problems if problem.answer is not None]
    verifications = verify([(problem.answer, f"\\boxed{{{problem.answer}}}") for problem in answered])
    failures = []
    for problem, verification in zip(answered, verifications, strict=True):
        if verification.verdict != "correct":
            failure = {"problem_id": problem.problem_id, "answer": str(problem.answer), "verdict": verification.verdict}
            failures.append(failure)
    return failures


def _counts(values: Iterable[int | str | None]) -> dict[str, int]:
    counts: Counter[Any] = Counter(values)
    unknown = counts.pop(None, 0)
    named = {str(value): counts[value] for value in sorted(counts)}
    if unknown:
        named["unknown"] = unknown
    return named
