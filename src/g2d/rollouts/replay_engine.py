"""An engine that replays recorded completions.

A JSONL or Parquet file has a column `completion` and either `problem_id` or `prompt` (the problem text), perhaps
`finish_reason` (stop or length) and `token_count`. Rows of one problem are its samples, in file order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

from g2d.jobs.files import read_rows
from g2d.problems.prompts import Messages
from g2d.rollouts.engine import Completion, Decoding, Request
from g2d.rollouts.rollout import FinishReason


class ReplayEngine:
    name = "replay"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        rows = read_recorded(self.path)
        self.by = "problem_id" if "problem_id" in rows[0] else "prompt"
        self.completions: dict[str, list[Completion]] = defaultdict(list)
        for row in rows:
            text = str(row["completion"])
            reason: FinishReason = "length" if row.get("finish_reason") == "length" else "stop"
            tokens = row.get("token_count")
            count = len(text.split()) if tokens is None else int(tokens)
            self.completions[str(row[self.by])].append(Completion(text, count, reason))

    def render(self, shown: Messages | str) -> str:
        """Return the problem text, since the template is not recorded."""
        return shown if isinstance(shown, str) else shown[-1]["content"]

    def request(self, problem_id: str, shown: Messages | str) -> Request:
        return Request(problem_id, self.render(shown))

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """See `Engine`; a ValueError names a problem with fewer than `samples_per_prompt` recorded completions."""
        drawn = []
        for request in requests:
            recorded = self.completions.get(request.problem_id if self.by == "problem_id" else request.prompt_text, [])
            if len(recorded) < decoding.samples_per_prompt:
                raise ValueError(
                    f"{self.path}: problem {request.problem_id} has {len(recorded)} recorded completions but "
                    f"samples_per_prompt asks for {decoding.samples_per_prompt}: lower it or drop the problem"
                )
            drawn.append(recorded[: decoding.samples_per_prompt])
        return drawn


def read_recorded(path: Path) -> list[dict[str, Any]]:
    """Read recorded completions; a ValueError names the file, and the row with a missing or wrong value."""
    if path.suffix == ".parquet":
        numbered, place = [*enumerate(_parquet_rows(path), 1)], f"{path}, row"
    else:
        numbered, place = list(read_rows(path, surrogates=True)), f"{path}, line"
    if not numbered:
        raise ValueError(f"{path}: holds no completions")
    identity = "problem_id" if "problem_id" in numbered[0][1] else "prompt"
    for number, row in numbered:
        if missing := [column for column in ("completion", identity) if column not in row]:
            raise ValueError(
                f"{place} {number}: lacks {missing[0]}; every row needs completion and one of problem_id, prompt "
                f"(it has {', '.join(row)})"
            )
        for column, fits, kind in (
            (identity, lambda value: isinstance(value, str) or _is_number(value), "text or a number"),
            ("completion", lambda value: isinstance(value, str), "text"),
            ("token_count", lambda n: n is None or (_is_number(n) and n >= 0), "a number of tokens"),
        ):
            if not fits(value := row.get(column)):
                raise ValueError(f"{place} {number}: {column} is {value!r:.40} where {kind} was expected: correct it")
    return [row for _, row in numbered]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except Exception as error:  # pyarrow raises several unrelated types
        raise ValueError(f"{path}: cannot be read as Parquet: {error}") from None

    def is_there(value: Any) -> bool:
        return value is not None and not (isinstance(value, float) and math.isnan(value))

    return [{name: value for name, value in row.items() if is_there(value)} for row in rows]
