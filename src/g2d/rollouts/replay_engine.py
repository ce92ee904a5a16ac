"""Rollouts that were recorded elsewhere, replayed as if they were generated now.

Any JSONL or Parquet file with a column `completion` and either `problem_id` or `prompt` (the problem text) will do;
`finish_reason` (stop or length) and `token_count` are used where present. Rows of one problem are its samples, in
file order.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.prompts import Messages
from g2d.rollouts.engine import Completion, Decoding, Request
from g2d.rollouts.rollout import FinishReason


class ReplayEngine:
    """Looks completions up instead of generating them."""

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

    def render(self, messages: Messages) -> str:
        """The problem text itself: whatever template was used is not recorded."""
        return messages[-1]["content"]

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """The first `samples_per_prompt` recorded completions of every request.

        Raises:
            ValueError: a problem has fewer; the message names the first.
        """
        drawn = []
        for request in requests:
            found = self.completions.get(request.problem_id if self.by == "problem_id" else request.prompt_text, [])
            if len(found) < decoding.samples_per_prompt:
                raise ValueError(
                    f"{self.path}: problem {request.problem_id} has {len(found)} recorded completions but "
                    f"samples_per_prompt asks for {decoding.samples_per_prompt}: lower it or drop the problem"
                )
            drawn.append(found[: decoding.samples_per_prompt])
        return drawn


def read_recorded(path: Path) -> list[dict[str, Any]]:
    """Read a file of recorded completions, one row per completion.

    Raises:
        ValueError: it cannot be read, is empty, or a row lacks a column; the message says which.
    """
    try:
        if path.suffix == ".parquet":
            rows = [{key: value for key, value in row.items() if pd.notna(value)} for row in _parquet_rows(path)]
        else:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except Exception as error:  # pyarrow raises several unrelated types
        raise ValueError(f"{path}: cannot be read as JSONL or Parquet: {error}") from None
    if not rows:
        raise ValueError(f"{path}: holds no completions")
    identity = "problem_id" if "problem_id" in rows[0] else "prompt"
    for number, row in enumerate(rows, 1):
        if missing := [column for column in ("completion", identity) if column not in row]:
            raise ValueError(
                f"{path}, row {number}: lacks {missing[0]}; every row needs completion and one of problem_id, prompt "
                f"(it has {', '.join(row)})"
            )
    return rows


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in pd.read_parquet(path).to_dict("records")]
