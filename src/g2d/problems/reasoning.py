"""Problems of reasoning-gym, drawn in a separate process because some tasks depend on Python's hash seed."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import count
from typing import Any

from g2d.plain import first_line, say
from g2d.problems.leakage import text_key
from g2d.problems.problem import Problem
from g2d.problems.settings import DEVELOPMENT, ReasoningProblems
from g2d.problems.synthetic import Split, shares, split_of

PACKAGE = "reasoning_gym"
INSTALL = "reasoning-gym is not installed in this environment: pip install -e '.[reasoning-gym]'"
RESERVED = ("seed", "size")  # set by g2d
CHECK_S = 20.0  # CPU seconds; a problem takes up to 0.3 s
# Draws in a row without a new question of the split.
PATIENCE, PATIENCE_PER_QUESTION = 500, 10


class TaskError(ValueError):
    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key


def split_for(name: str, source: ReasoningProblems) -> Split:
    return source.split or {"pool": "train", DEVELOPMENT: "development"}.get(name, "test")  # type: ignore[return-value]


def generate(name: str, source: ReasoningProblems) -> list[Problem]:
    """Draw n different problems, evenly over the levels; a TaskError if the task cannot provide them."""
    split = split_for(name, source)
    return [
        Problem(
            problem_id=f"{source.task}-{split}-{number:05d}",
            **row,
            subject=source.task,
            source=f"{PACKAGE}:{source.task}:{split}",
        )
        for number, row in enumerate(_drawn(source, split, None))
    ]


def require(name: str, source: ReasoningProblems) -> None:
    """Raise a TaskError if the package, the task, its configuration or n different problems are missing."""
    _drawn(source, split_for(name, source), CHECK_S)


def _drawn(source: ReasoningProblems, split: Split, seconds: float | None) -> list[dict[str, Any]]:
    """Draw rows in a child process, all or as many as it makes in `seconds` of CPU time."""
    if find_spec(PACKAGE) is None:
        raise TaskError("source", INSTALL)
    request = source.model_dump(mode="json") | {"split": split, "seconds": seconds}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-m", "g2d.problems.reasoning"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode:
        raise TaskError("task", f"{source.task} fails: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise TaskError(answer["key"], answer["error"])
    return answer["rows"]


def main() -> None:
    try:
        request = json.load(sys.stdin)
        drawn = [*rows(request)]
        random.Random(f"{request['task']}/{request['split']}/{request['seed']}").shuffle(drawn)  # mixes the levels
        say("\n" + json.dumps({"rows": drawn}))
    except TaskError as error:
        say("\n" + json.dumps({"key": error.key, "error": str(error)}))


def rows(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    levels: list[tuple[str, int | None, dict[str, Any]]] = [("config", None, {})]
    if request["levels"]:
        levels = [(f"levels.{i}", i + 1, changes) for i, changes in enumerate(request["levels"])]
    until = None if request["seconds"] is None else time.process_time() + request["seconds"]
    datasets = [_dataset(key, request, request["config"] | changes, level) for key, level, changes in levels]
    seen: set[str] = set()
    for (at, share), (_, level, changes) in zip(shares(range(len(levels)), request["n"]), levels, strict=True):
        config, before = request["config"] | changes, len(seen)
        accepted = barren = 0
        for index in count():
            if accepted == share or (until is not None and time.process_time() > until):
                break
            if barren > PATIENCE + PATIENCE_PER_QUESTION * (len(seen) - before):
                of_level = "" if level is None else f"level {level}: "
                raise TaskError(
                    "n",
                    f"{of_level}{request['task']} gives {accepted} different {request['split']} problems of the "
                    f"{share} asked for: lower n to at most {accepted * len(levels)}, or change config",
                )
            entry = _plain(datasets[at][index])
            question = entry["question"]
            barren += 1
            if question in seen:
                continue
            seen.add(question)
            if split_of(text_key(question)) != request["split"]:
                continue
            accepted, barren = accepted + 1, 0
            yield {
                "prompt": question,
                "answer": "" if entry["answer"] is None else str(entry["answer"]),  # "": several, none given
                "level": level,
                "entry": repr({"task": request["task"], "config": config, "entry": entry}),
            }


def _dataset(key: str, request: Mapping[str, Any], config: Mapping[str, Any], level: int | None) -> Any:
    from reasoning_gym.factory import DATASETS, create_dataset

    task = request["task"]
    tasks = sorted(set(DATASETS) - {"composite"})  # mixes problems of other tasks
    if task not in tasks:
        near = difflib.get_close_matches(task, tasks, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"choose from {', '.join(tasks)}"
        raise TaskError("task", f"reasoning-gym has no task {task}; {hint}")
    fields = sorted({field.name for field in dataclasses.fields(DATASETS[task][1])} - set(RESERVED))
    for name in config:
        if name in RESERVED:
            raise TaskError(key, f"{name} is not for the task's configuration: write n and seed beside it")
        if name not in fields:
            raise TaskError(key, f"{task} has no {name}: choose from {', '.join(fields)}")
    # Problem i depends on seed + i, so neighbouring seeds would give almost the same problems.
    words = f"{task}/{request['split']}/{request['seed']}/{level}"
    seed = int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big") // 2
    try:
        return create_dataset(task, seed=seed, size=max(500, 2 * request["n"]), **config)
    except Exception as error:
        raise TaskError(key, f"{task} refuses this configuration ({first_line(error)}): correct it") from None


def _plain(value: Any) -> Any:
    """Replace NumPy's scalars, which no literal can hold."""
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value.item() if hasattr(value, "item") and hasattr(value, "dtype") else value


if __name__ == "__main__":
    main()
