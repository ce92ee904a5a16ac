"""A Problem: one question with a verifiable reference answer, and its JSONL file format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """One question, whatever data set it came from."""

    problem_id: str
    prompt: str  # the question alone; instruction and chat template are added when it is shown to a policy
    answer: str  # reference answer in LaTeX, as it would stand inside \boxed{}
    level: int | None  # difficulty; None where the publisher gives none ("Level ?")
    subject: str | None
    source: str  # where it came from, for example "hub:openai/gsm8k@<sha>"


def write_problems(path: str | Path, problems: Iterable[Problem]) -> None:
    """One JSON object a line, keys as in `Problem`."""
    with open(path, "w", encoding="utf-8") as file:
        for problem in problems:
            file.write(json.dumps(asdict(problem), ensure_ascii=False) + "\n")


def read_problems(path: str | Path) -> list[Problem]:
    """Read what `write_problems` wrote.

    Raises:
        ValueError: a line is not a Problem; the message names file and line.
    """
    problems = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                problems.append(Problem(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a problem record: {error}") from None
    return problems
