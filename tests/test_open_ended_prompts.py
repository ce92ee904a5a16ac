"""`examples/open_ended_prompts.py`, with files in place of the Hub's."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.problems.problem_keys import HELD_OUT, OPEN_ENDED, LocalProblems
from g2d.problems.sources import load_problems
from tests.configs import CONFIG

SCRIPT = CONFIG.parent / "examples/open_ended_prompts.py"


def conversation(prompt: str, **changes: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "Well."}]
    return {"conversation": turns, "language": "English", "toxic": False, "redacted": False} | changes


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The prompts of both files, as g2d reads them."""
    conversations = [
        *(conversation(f"Tell me about {n} bridges.") for n in range(5)),
        conversation("Tell me  about 1 bridges"),
        conversation("Name a fruit!"),
        conversation("Nommez un fruit.", language="French"),
        conversation("Something bad.", toxic=True),
        conversation("NAME_1 asks.", redacted=True),
        conversation("x" * 2001),
        conversation("A bell: \a."),
        conversation(" \n"),
    ]
    pd.DataFrame(conversations).to_parquet(tmp_path / "wildchat.parquet")
    held_out = [{"instruction": text} for text in ("Name a fruit!", "Name a  fruit!", "Why?")]
    (tmp_path / "alpaca_eval.json").write_text(json.dumps(held_out))

    def download(repository: str, file: str, **of: str) -> str:
        assert len(of["revision"]) == 40
        return str(tmp_path / ("wildchat.parquet" if "WildChat" in repository else "alpaca_eval.json"))

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    runpy.run_path(str(SCRIPT))["main"](tmp_path, 5, 0)
    prompts = {}
    for name, kind in (("wildchat", OPEN_ENDED), ("alpaca_eval", HELD_OUT)):
        source = LocalProblems(source="local", path=str(tmp_path / f"{name}.jsonl"))
        prompts[name] = [problem.prompt for problem in load_problems(kind, source)]
    return prompts


def test_training_prompts_are_usable_first_turns_each_once(written: dict[str, list[str]]) -> None:
    assert sorted(written["wildchat"]) == [f"Tell me about {n} bridges." for n in range(5)]


def test_held_out_prompts_are_those_of_alpaca_eval_each_once(written: dict[str, list[str]]) -> None:
    assert written["alpaca_eval"] == ["Name a fruit!", "Why?"]
