"""A `Problem`: one verifiable or open-ended question, and its JSONL format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from g2d.jobs.files import parse_json, read_lines, write_text

Kind = Literal["verifiable", "open_ended"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One question."""

    problem_id: str
    prompt: str  # the question, without instruction and chat template
    answer: str | None  # reference answer in LaTeX, without \boxed{}; None where it is open-ended
    level: int | None  # difficulty; None where the publisher gives none ("Level ?")
    subject: str | None
    source: str  # for example "hub:openai/gsm8k@<sha>"

    @property
    def kind(self) -> Kind:
        """Whether there is a reference answer."""
        return "open_ended" if self.answer is None else "verifiable"


def to_jsonl(problems: Iterable[Problem]) -> str:
    """One JSON object a line, keys as in `Problem`."""
    return "".join(json.dumps(asdict(problem), ensure_ascii=False) + "\n" for problem in problems)


def write_problems(path: str | Path, problems: Iterable[Problem]) -> None:
    """Write `to_jsonl` atomically, as UTF-8."""
    write_text(path, to_jsonl(problems))


def read_problems(path: str | Path) -> list[Problem]:
    """Read what `write_problems` wrote; a ValueError names file and line where it is no Problem, or cut short."""
    problems = []
    for number, line in read_lines(path):
        try:
            problems.append(Problem(**parse_json(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: not a problem record: {error}; delete the file to have it made again"
            ) from None
    return problems
