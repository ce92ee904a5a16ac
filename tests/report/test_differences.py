"""Differences between two files of the same job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from g2d.jobs.files import write_json
from g2d.report.differences import beyond_bounds, differences

ANSWERS = pd.DataFrame(
    {"problem_id": [f"p{i}" for i in range(40)], "verdict": ["correct", "incorrect"] * 20, "reward": [1.0, 0.0] * 20}
)


def answers(file: Path, *flipped: int) -> Path:
    frame = ANSWERS.copy()
    for row in flipped:
        right = frame.verdict[row] == "incorrect"
        frame.loc[row, ["verdict", "reward"]] = ("correct", 1.0) if right else ("incorrect", 0.0)
    frame.to_parquet(file, index=False)
    return file


def adapter(file: Path, b: np.ndarray) -> Path:
    a = np.full((4, 4), 9.0, np.float32)
    save_file({"layer.lora_A.weight": a, "layer.lora_B.weight": b.astype(np.float32)}, file)
    return file


def test_columns_of_answers_and_tables(tmp_path: Path) -> None:
    first, second = answers(tmp_path / "a.parquet"), answers(tmp_path / "b.parquet", 7)
    assert differences(first, second) == ["verdict: 1 of 40 differ", "reward: 1 of 40 differ, by at most 1"]
    ANSWERS.to_parquet(second, index=False, compression="gzip")  # other bytes
    assert differences(first, second) == []
    (tmp_path / "a.csv").write_text("k,accuracy\n0,0.5\n50,0.625\n")
    (tmp_path / "b.csv").write_text("k,accuracy\n0,0.5\n50,0.725\n")
    (tmp_path / "c.csv").write_text("k,accuracy\n0,0.5\n")
    assert differences(tmp_path / "a.csv", tmp_path / "b.csv") == ["accuracy: 1 of 2 differ, by at most 0.1"]
    assert differences(tmp_path / "a.csv", tmp_path / "c.csv") == [
        "k: 2 recorded, 1 computed",
        "accuracy: 2 recorded, 1 computed",
    ]


@pytest.mark.parametrize(("key", "is_measured"), [("wall_s", True), ("device", True), ("tokens_generated", False)])
def test_durations_in_costs_are_not_compared(tmp_path: Path, key: str, is_measured: bool) -> None:
    cost: dict[str, Any] = {"job": "j", "wall_s": 1.0, "device": "cpu", "tokens_generated": 5, "ancestry": []}
    for name, record in (("a.json", cost), ("b.json", cost | {key: 7})):
        write_json(tmp_path / name, record)
    reasons = differences(tmp_path / "a.json", tmp_path / "b.json")
    assert reasons == ([] if is_measured else ["tokens_generated: 5 recorded, 7 computed"])


def test_metrics_and_weights(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1, "loss": 0.5, "step_time": 3}\n')
    (tmp_path / "b.jsonl").write_text('{"step": 1, "loss": 0.25, "step_time": 4}\n')
    assert differences(tmp_path / "a.jsonl", tmp_path / "b.jsonl") == ["loss: 1 of 1 differ, by at most 0.25"]
    first, second = (
        adapter(tmp_path / f"{name}.safetensors", b) for name, b in (("a", np.ones(4)), ("b", -np.ones(4)))
    )
    assert differences(first, second) == ["layer.lora_B.weight: 4 of 4 differ, by at most 2"]


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    first, none = answers(tmp_path / "a.parquet"), tmp_path / "none.parquet"
    assert (differences(first, none), differences(none, first)) == (["not made again"], ["missing"])
    assert beyond_bounds(none, first) == "missing"
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    assert "cannot be read" in differences(first, tmp_path / "b.parquet")[0]


def test_bounds_on_a_gpu(tmp_path: Path) -> None:
    """Some other answers are within bounds; a better policy and other weights are not."""
    first = answers(tmp_path / "a.parquet")
    assert beyond_bounds(first, answers(tmp_path / "b.parquet", 0, 1, 2, 3, 4, 5)) == ""
    better = answers(tmp_path / "c.parquet", *range(1, 40, 2))
    assert beyond_bounds(first, better).startswith("20 right answers recorded, 40 computed, p = ")
    ones = np.ones(4)
    trained = adapter(tmp_path / "a.safetensors", ones)
    assert beyond_bounds(trained, adapter(tmp_path / "b.safetensors", ones * [1.1, 1, 1, 0.9])) == ""
    assert beyond_bounds(trained, adapter(tmp_path / "c.safetensors", ones * [1, -1, 1, -1])).startswith("cosine of")
    assert beyond_bounds(trained, adapter(tmp_path / "d.safetensors", np.ones(5))) == "weights of another shape"
