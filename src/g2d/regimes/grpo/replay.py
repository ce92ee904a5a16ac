"""Experience replay: earlier completions replace some of the sampled ones.

Either whole groups of the last updates are replayed (arXiv 2604.08706), or right completions of a harvest in every
group (RLEP, arXiv 2507.07451). The selection depends only on the seed and the step.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import model_validator

from g2d.jobs.files import atomic
from g2d.settings import Section, Steps, key

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
FILE = "replay.parquet"  # file in a checkpoint
STALENESS = "replay/staleness"  # mean over groups of the updates since they were sampled


class Replay(Section):
    """Replay groups of earlier updates, or right completions of a harvest."""

    buffer: int | None = key(
        None, "Latest groups to keep and sample from uniformly (arXiv 2604.08706).", unit="groups", ge=1, neutral=None
    )
    share: float | None = key(
        None, "Share of an update's groups from the buffer; must give a whole number.", gt=0, lt=1, neutral=None
    )
    successes: int | None = key(
        None,
        "Most completions of a group to replace by right ones of a harvest (RLEP, arXiv 2507.07451).",
        paper="2, beside 16 drawn ones",
        ge=1,
        neutral=None,
    )
    harvest_step: Steps | None = key(
        None, "With successes: K of their harvest in the main grid.", unit="steps", neutral=None
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Replay:
        if {*self.params()} not in ({"buffer", "share"}, {"successes", "harvest_step"}):
            raise ValueError("write buffer and share (experience replay), or successes and harvest_step (RLEP)")
        return self


class Completion(NamedTuple):
    ids: list[int]
    log_probs: list[float]  # sampling policy's; NaN if not used


@dataclass(frozen=True)
class StoredGroup:
    generation: int  # counted from 0
    row: int
    ids: list[list[int]]
    log_probs: list[list[float]]


class ReplayBuffer:
    """The last `size` groups; each generation after the first replays `n` of them."""

    def __init__(self, size: int, n: int, group_size: int, seed: int) -> None:
        self.n, self.group_size, self.seed = n, group_size, seed
        self.groups: deque[StoredGroup] = deque(maxlen=size)
        self.replayed: dict[int, Completion] = {}
        self.ages: list[int] = []  # generations since they were sampled
        self._drawn: list[int] = []  # rows of the data set

    def begin(self, inputs: Sequence[Row], generation: int, data: Sequence[Row]) -> list[Row]:
        chosen: list[StoredGroup] = []
        if generation:
            chosen = random.Random(f"{self.seed}/replay/{generation}").sample([*self.groups], self.n)
        n = len(inputs) // self.group_size
        first = self.n + generation * (n - self.n) if generation else 0
        self._drawn = [*range(first, first + n - len(chosen))]
        self.ages = [generation - group.generation for group in chosen]
        completions = [pair for group in chosen for pair in zip(group.ids, group.log_probs, strict=True)]
        places = range(len(self._drawn) * self.group_size, len(inputs))
        self.replayed = {row: Completion(*pair) for row, pair in zip(places, completions, strict=True)}
        rows = [*self._drawn, *(group.row for group in chosen)]
        return [data[row] for row in rows for _ in range(self.group_size)]

    def add(self, generation: int, ids: Sequence[list[int]], log_probs: Sequence[list[float]]) -> None:
        for place, row in enumerate(self._drawn):
            rows = slice(place * self.group_size, (place + 1) * self.group_size)
            self.groups.append(StoredGroup(generation, row, [*ids[rows]], [*log_probs[rows]]))

    def save(self, folder: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        rows = [asdict(group) for group in self.groups]
        table = pyarrow.table({name: [row[name] for row in rows] for name in StoredGroup.__annotations__})
        with atomic(folder / FILE) as draft:
            pyarrow.parquet.write_table(table, draft)

    def restore(self, folder: Path) -> None:
        import pyarrow.parquet

        self.groups.clear()
        self.groups.extend(StoredGroup(**row) for row in pyarrow.parquet.read_table(folder / FILE).to_pylist())


class Successes:
    def __init__(self, harvest: pd.DataFrame, n: int, longest: int, group_size: int, seed: int) -> None:
        self.n, self.group_size, self.seed = n, group_size, seed
        self.replayed: dict[int, Completion] = {}
        self.by_problem: dict[str, list[list[int]]] = {}
        right = harvest[harvest["verdict"] == "correct"].sort_values("sample")
        for problem, ids in zip(right["problem_id"], right["completion_ids"], strict=True):
            if len(ids) <= longest:
                self.by_problem.setdefault(problem, []).append(ids.tolist())

    def begin(self, inputs: Sequence[Row], generation: int, data: Sequence[Row]) -> Sequence[Row]:
        self.replayed = {}
        for end in range(self.group_size, len(inputs) + 1, self.group_size):
            row = inputs[end - 1]
            successes = self.by_problem.get(row["problem_id"], [])
            # Every visit of a problem has another group name.
            chosen = random.Random(f"{self.seed}/successes/{row['group']}").sample(
                successes, min(self.n, len(successes))
            )
            self.replayed |= {end - 1 - i: Completion(ids, [math.nan] * len(ids)) for i, ids in enumerate(chosen)}
        return inputs


def with_replayed(
    drawn: tuple[Sequence[list[int]], Sequence[list[float]] | None], replayed: Mapping[int, Completion]
) -> tuple[list[list[int]], list[list[float]]]:
    """Merge sampled and replayed completions; unknown log-probabilities are NaN."""
    ids, log_probs = drawn
    sampled = log_probs if log_probs is not None else [[math.nan] * len(row) for row in ids]
    others = map(Completion, ids, sampled)
    rows = [replayed[row] if row in replayed else next(others) for row in range(len(ids) + len(replayed))]
    return [row.ids for row in rows], [row.log_probs for row in rows]
