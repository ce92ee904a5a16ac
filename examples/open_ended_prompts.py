"""Write the prompts of config/overlays/open_ended.yaml: wildchat.jsonl to train on, alpaca_eval.jsonl held out.

    python examples/open_ended_prompts.py runs/open      # downloads 230 MB from the Hub

Training prompts are drawn as in arXiv 2506.21495, section 3.1: user messages that begin a conversation of WildChat-1M.
Here they are English, at most 2,000 characters, neither toxic nor redacted, each once, from the first of 14 files.
Held-out prompts are AlpacaEval's; none of them is in the training set. WildChat has the licence ODC-BY, AlpacaEval
CC BY-NC 4.0.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import pandas as pd

from g2d.jobs.files import write_text
from g2d.lost_backslashes import require_backslashes
from g2d.problems.audit import text_key

WILDCHAT = ("allenai/WildChat-1M", "7d6490e462285cf85d91eabea0f9a954fbddcd1f", "data/train-00000-of-00014.parquet")
ALPACA_EVAL = ("tatsu-lab/alpaca_eval", "2955709b93b0e08df511a752a3874b0a89b8910b", "alpaca_eval.json")
LONGEST = 2000  # characters


def main(folder: Path, n: int, seed: int) -> None:
    examples = json.loads(Path(download(*ALPACA_EVAL)).read_text(encoding="utf-8"))
    held_out = distinct(example["instruction"] for example in examples)
    columns = ["conversation", "language", "toxic", "redacted"]
    conversations = pd.read_parquet(download(*WILDCHAT), columns=columns).to_dict("records")
    first_turns = distinct(first_turn(conversation) for conversation in conversations if is_usable(conversation))
    candidates = [prompt for key, prompt in first_turns.items() if key not in held_out]
    write(folder / "wildchat.jsonl", random.Random(seed).sample(candidates, n))
    write(folder / "alpaca_eval.jsonl", held_out.values())


def download(repository: str, revision: str, file: str) -> str:
    return huggingface_hub.hf_hub_download(repository, file, repo_type="dataset", revision=revision)


def first_turn(conversation: Mapping[str, Any]) -> str:
    return str(conversation["conversation"][0]["content"])


def is_usable(conversation: Mapping[str, Any]) -> bool:
    if conversation["language"] != "English" or conversation["toxic"] or conversation["redacted"]:
        return False
    return len(first_turn(conversation)) <= LONGEST


def distinct(prompts: Iterable[str]) -> dict[str, str]:
    """Return the prompts that g2d reads, by their text without layout."""
    by_text: dict[str, str] = {}
    for prompt in prompts:
        try:
            require_backslashes(prompt)  # refuses control characters
        except ValueError:
            continue
        key = text_key(prompt)
        if key:
            by_text.setdefault(key, prompt)
    return by_text


def write(path: Path, prompts: Iterable[str]) -> None:
    write_text(path, "".join(json.dumps({"problem": prompt}) + "\n" for prompt in prompts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the run will be")
    parser.add_argument("--n", type=int, default=1000, help="number of training prompts (default: the paper's 1,000)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    main(arguments.folder, arguments.n, arguments.seed)
