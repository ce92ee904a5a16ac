"""Rollouts that were recorded elsewhere, replayed as if they were generated now.

Any JSONL or Parquet file with a column `completion` and either `problem_id` or `prompt` (the problem text) will do;
`finish_reason` (stop or length) and `token_count` are used where present. Rows of one problem are its samples, in
file order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from g2d.prompts import Messages
from g2d.rollouts.engine import Completion, Decoding, Request
from g2d.rollouts.rollout import FinishReason


class ReplayEngine:
    """Looks completions up instead of generating them."""

    name = "replay"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        frame = read_recorded(self.path)
        self.by = "problem_id" if "problem_id" in frame.columns else "prompt"
        self.completions: dict[str, list[Completion]] = defaultdict(list)
        for row in frame.to_dict("records"):
            text = str(row["completion"])
            reason: FinishReason = "length" if row.get("finish_reason") == "length" else "stop"
            tokens = int(row["token_count"]) if pd.notna(row.get("token_count")) else len(text.split())
            self.completions[str(row[self.by])].append(Completion(text, tokens, reason))

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


def read_recorded(path: Path) -> pd.DataFrame:
    """Read a file of recorded completions.

    Raises:
        ValueError: it cannot be read or lacks a column; the message says which.
    """
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True, dtype=False)
    except Exception as error:  # pandas and pyarrow raise several unrelated types
        raise ValueError(f"{path}: cannot be read as JSONL or Parquet: {error}") from None
    if "completion" not in frame.columns or not {"problem_id", "prompt"} & set(frame.columns):
        raise ValueError(f"{path}: needs a column completion and one of problem_id, prompt; has {list(frame.columns)}")
    return frame
