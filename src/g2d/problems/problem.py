"""A Problem: one question with a verifiable reference answer, and its JSONL file format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from g2d.jobs.files import atomic, parse_json, read_lines


@dataclass(frozen=True, slots=True)
class Problem:
    """One question, whatever data set it came from."""

    problem_id: str
    prompt: str  # the question alone; instruction and chat template are added when it is shown to a policy
    answer: str  # reference answer in LaTeX, as it would stand inside \boxed{}
    level: int | None  # difficulty; None where the publisher gives none ("Level ?")
    subject: str | None
    source: str  # where it came from, for example "hub:openai/gsm8k@<sha>"


def to_jsonl(problems: Iterable[Problem]) -> str:
    """One JSON object a line, keys as in `Problem`; the same bytes for the same problems."""
    return "".join(json.dumps(asdict(problem), ensure_ascii=False) + "\n" for problem in problems)


def write_problems(path: str | Path, problems: Iterable[Problem]) -> None:
    """Write `to_jsonl` atomically, as UTF-8."""
    with atomic(path) as draft:
        draft.write_bytes(to_jsonl(problems).encode())


def read_problems(path: str | Path) -> list[Problem]:
    """Read what `write_problems` wrote.

    Raises:
        ValueError: it is empty or cut short, or a line is not a Problem; the message names file and line.
    """
    problems = []
    for number, line in read_lines(path):
        try:
            problems.append(Problem(**parse_json(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: not a problem record: {error}; delete the file to have it made again"
            ) from None
    return problems
