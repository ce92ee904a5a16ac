"""Differences between two files of the same job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

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


COST = '{"job": "j", "wall_s": 1.0, "device": "cpu", "tokens_generated": 5, "ancestry": []}'


@pytest.mark.parametrize(
    ("suffix", "recorded", "again", "expected"),
    [
        ("csv", "k,x\n0,0.5\n50,0.625\n", "k,x\n0,0.5\n50,0.725\n", ["x: 1 of 2 differ, by at most 0.1"]),
        ("csv", "k,x\n0,0.5\n50,0.6\n", "k,x\n0,0.5\n", ["k: 2 recorded, 1 computed", "x: 2 recorded, 1 computed"]),
        (
            "jsonl",
            '{"loss": 0.5, "step_time": 3}',
            '{"loss": 0.25, "step_time": 4}',
            ["loss: 1 of 1 differ, by at most 0.25"],
        ),
        ("json", COST, COST.replace("1.0", "7"), []),  # durations and devices are not compared
        ("json", COST, COST.replace("cpu", "gpu"), []),
        ("json", COST, COST.replace("5", "7"), ["tokens_generated: 5 recorded, 7 computed"]),
    ],
)
def test_tables_metrics_and_costs(tmp_path: Path, suffix: str, recorded: str, again: str, expected: list[str]) -> None:
    first, second = (tmp_path / f"{name}.{suffix}" for name in "ab")
    first.write_text(recorded)
    second.write_text(again)
    assert differences(first, second) == expected


def test_answers_and_weights(tmp_path: Path) -> None:
    first, second = answers(tmp_path / "a.parquet"), answers(tmp_path / "b.parquet", 7)
    assert differences(first, second) == ["verdict: 1 of 40 differ", "reward: 1 of 40 differ, by at most 1"]
    ANSWERS.to_parquet(second, index=False, compression="gzip")  # other bytes
    assert differences(first, second) == []
    weights = [adapter(tmp_path / f"{n}.safetensors", n * np.ones(4)) for n in (1, -1)]
    assert differences(*weights) == ["layer.lora_B.weight: 4 of 4 differ, by at most 2"]


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
