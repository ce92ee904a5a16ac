r"""The manifest of a set of problems, a JSON-ready record beside its JSONL file.

It has the source and digest, and lists problems without a level, repeated prompts, and reference answers that the
verifier does not accept as their own answer. No problem is dropped.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from g2d.jobs.files import sha256
from g2d.problems.problem import Problem, to_jsonl
from g2d.problems.settings import LocalProblems, ProblemSource
from g2d.verifier.verdict import Judgement

Verify = Callable[[Sequence[tuple[str, str]]], Sequence[Judgement]]
"""Judges pairs of (reference answer, completion): `g2d.verifier.verify_batch`."""


def manifest(name: str, source: ProblemSource, problems: Sequence[Problem], verify: Verify) -> dict[str, Any]:
    """Describe the problems loaded from a source."""
    record: dict[str, Any] = {
        "name": name,
        "source": source.model_dump(),
        "sha256": hashlib.sha256(to_jsonl(problems).encode()).hexdigest(),
        "n": len(problems),
        "levels": _counts(problem.level for problem in problems),
        "subjects": _counts(problem.subject for problem in problems),
        "duplicate_prompts": len(problems) - len({problem.prompt for problem in problems}),
        "reference_failures": reference_failures(problems, verify),
    }
    if isinstance(source, LocalProblems):
        record["source_sha256"] = sha256(source.path)
    return record


def reference_failures(problems: Sequence[Problem], verify: Verify) -> list[dict[str, str]]:
    """Problems whose own reference answer, boxed, does not verify: id, answer and verdict."""
    answers = [(problem.problem_id, problem.answer) for problem in problems if problem.answer is not None]
    judgements = verify([(answer, f"\\boxed{{{answer}}}") for _, answer in answers])
    return [
        {"problem_id": name, "answer": answer, "verdict": judgement.verdict}
        for (name, answer), judgement in zip(answers, judgements, strict=True)
        if judgement.verdict != "correct"
    ]


def _counts(values: Iterable[Any]) -> dict[str, int]:
    """Number of each value, sorted; None is "unknown" and last."""
    counts = Counter(values)
    unknown = counts.pop(None, 0)
    return {str(value): counts[value] for value in sorted(counts)} | ({"unknown": unknown} if unknown else {})
