from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from g2d.jobs.files import parse_json, read_lines, write_text
from g2d.verifier.verifier import Reference, Verifier

Kind = Literal["verifiable", "open_ended"]


@dataclass(frozen=True, slots=True)
class Problem:
    problem_id: str
    prompt: str  # without instruction and chat template
    answer: str | None  # LaTeX, without \boxed{}; None if open-ended
    level: int | None  # None if the publisher gives none ("Level ?")
    subject: str | None
    source: str  # like "hub:openai/gsm8k@<sha>"
    metadata: object = field(default=None, hash=False)  # JSON, for a verifier in Python

    @property
    def kind(self) -> Kind:
        return "open_ended" if self.answer is None else "verifiable"

    @property
    def as_judged(self) -> dict[str, object]:
        """The problem as a verifier in Python sees it."""
        names = ("prompt", "answer", "level", "subject", "metadata")
        return {name: getattr(self, name) for name in names}


def references(problems: Iterable[Problem], verifier: Verifier) -> list[Reference]:
    """Return what the verifier compares completions with; None for an open-ended problem."""
    if verifier.file is None:
        return [problem.answer for problem in problems]
    compared: list[Reference] = []
    for problem in problems:
        compared.append(problem.as_judged if problem.answer is not None else None)
    return compared


def to_jsonl(problems: Iterable[Problem]) -> str:
    """Return one JSON object per line, without `metadata` if it is None."""

    lines = []
    for problem in problems:
        record = asdict(problem)
        if problem.metadata is None:
            del record["metadata"]
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    return "".join(lines)


def write_problems(path: str | Path, problems: Iterable[Problem]) -> None:
    write_text(path, to_jsonl(problems))


def read_problems(path: str | Path) -> list[Problem]:
    """Read a file of `write_problems`; a ValueError names file and line."""
    problems = []
    for number, line in read_lines(path):
        try:
            problems.append(Problem(**parse_json(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: not a problem record: {error}; delete the file to have it made again"
            ) from None
    return problems
