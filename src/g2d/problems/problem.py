"""A Problem: one question with a verifiable reference answer, or open-ended, and its JSONL file format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from g2d.jobs.files import atomic, parse_json, read_lines

Kind = Literal["verifiable", "open_ended"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One question, whatever data set it came from."""

    problem_id: str
    prompt: str  # the question alone; instruction and chat template are added when it is shown to a policy
    answer: str | None  # reference answer in LaTeX, as it would stand inside \boxed{}; None: no answer is the right one
    level: int | None  # difficulty; None where the publisher gives none ("Level ?")
    subject: str | None
    source: str  # where it came from, for example "hub:openai/gsm8k@<sha>"

    @property
    def kind(self) -> Kind:
        """Whether there is an answer to compare with; else another reward has to say what a completion is worth."""
        return "open_ended" if self.answer is None else "verifiable"


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
