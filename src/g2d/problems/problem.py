"""A problem, its file, and subsets of a pool.

Subsets do not depend on the order of the pool, and a larger n includes every problem of a smaller one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Literal

from g2d.jobs.files import parse_json, read_lines, write_text
from g2d.verifier.verifier import Reference, Verifier

Kind = Literal["verifiable", "open_ended"]
Level = int | None  # None if the publisher gives none ("Level ?")


@dataclass(frozen=True, slots=True)
class Problem:
    problem_id: str
    prompt: str  # without instruction and chat template
    answer: str | None  # LaTeX, without \boxed{}; None if open-ended
    level: Level
    subject: str | None
    source: str  # like "hub:openai/gsm8k@<sha>"
    metadata: object = field(default=None, hash=False)  # JSON, for a verifier in Python
    cluster: str = ""  # shared by questions that are not independent; by default `problem_id`

    def __post_init__(self) -> None:
        if not self.cluster:
            object.__setattr__(self, "cluster", self.problem_id)

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


def sample_per_level(
    pool: Sequence[Problem], per_level: int, seed: int, only: Collection[Level] | None = None
) -> list[Problem]:
    """Draw up to `per_level` problems of every level, or of the levels `only`.

    Problems without a level are left out; a pool without levels is one level.
    """
    sample: list[Problem] = []
    for level in levels_of(pool):
        if only is None or level in only:
            sample += _shuffled(pool, {level}, f"calibration/{level}/{seed}")[:per_level]
    return sample


def levels_of(pool: Sequence[Problem]) -> list[Level]:
    """`[None]` if no problem has a level."""
    levels = sorted({problem.level for problem in pool if problem.level is not None})
    return [*levels] or [None]


def draw_training_set(pool: Sequence[Problem], levels: Collection[Level], n: int, seed: int) -> list[Problem]:
    """Draw n different problems of the given levels, uniformly; a ValueError if there are fewer."""
    candidates = _shuffled(pool, levels, f"training_set/{seed}")
    if len(candidates) < n and len(candidates) == len(pool):
        raise ValueError(
            f"training_set.n: {n} problems asked for, but the pool has {len(pool)}: lower training_set.n, or enlarge "
            "the pool"
        )
    if len(candidates) < n:
        raise ValueError(
            f"training_set.n: {n} problems asked for, but the pool has {len(candidates)} at levels {list(levels)} "
            f"(it has levels {levels_of(pool)}): lower training_set.n, pin more calibration.levels, or enlarge the pool"
        )
    return candidates[:n]


def _shuffled(pool: Sequence[Problem], levels: Collection[Level], seed: str) -> list[Problem]:
    chosen = [problem for problem in pool if problem.level in levels]
    chosen.sort(key=attrgetter("problem_id"))
    random.Random(seed).shuffle(chosen)
    return chosen
