"""Prompts without a right answer, for `open_ended`: three files, and their judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from g2d.problems import Problem

FOLDER = Path(__file__).parent


def prompts(name: str) -> dict[str, Any]:
    return {"source": "local", "path": str(FOLDER / f"{name}.jsonl")}


POOL, HELD_OUT, DEVELOPMENT = (prompts(name) for name in ("train", "held-out", "development"))
# A test that runs jobs makes it with `tests.rewards.models.reward_model`.
JUDGE = {"reward": "model", "path": "judge"}


def requests(n: int) -> list[Problem]:
    return [Problem(f"request-{i:05d}", f"Tell me about {i} bridges.", None, None, None, "tests") for i in range(n)]
