"""Published values next to results of a grid."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from g2d.checks.load import load, read
from g2d.tables.paper import PUBLISHED_COLUMNS, published_table
from tests.configs import CONFIG, MINIMAL

MAIN = pd.DataFrame(
    [
        {"policy": "base", "K": 0, "group_size": None, "accuracy": 0.5, "device_hours": 0.0},
        {"policy": "g2d", "K": 150, "group_size": 2, "accuracy": 0.6, "device_hours": 3.0},
    ]
).assign(model="qwen2.5-7b-instruct", benchmark="math500", ci_low=0.4, ci_high=0.7)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return published_table(MAIN, read(CONFIG / "paper.yaml"))


def test_every_model_and_benchmark_has_the_rows_of_table_1(table: pd.DataFrame) -> None:
    assert tuple(table.columns) == tuple(PUBLISHED_COLUMNS)
    assert len(table) == 2 * 9 * 2  # models, rows of Table 1, benchmarks


def row_of(table: pd.DataFrame, *names: str | int) -> dict[str, Any]:
    columns = table[["model", "policy", "K", "benchmark"]]
    [row] = table[(columns == names).all(axis=1)].to_dict("records")
    return row


def test_published_values_are_next_to_results(table: pd.DataFrame) -> None:
    row = row_of(table, "qwen2.5-7b-instruct", "g2d", 150, "math500")
    assert (row["paper_accuracy"], row["paper_std"], row["accuracy"]) == pytest.approx((0.624, 0.006, 0.6))
    assert (row["difference"], row["paper_gpu_hours"], row["device_hours"]) == pytest.approx((-0.024, 3.8, 3.0))
    base = row_of(table, "qwen2.5-7b-instruct", "base", 0, "math500")
    assert base["difference"] == pytest.approx(0.5 - 0.491)


def test_published_values_without_results_stand_alone(table: pd.DataFrame) -> None:
    other = row_of(table, "llama-3.1-8b-instruct", "g2d", 150, "gsm8k")
    assert other["paper_accuracy"] == pytest.approx(0.8576)
    for name in ("accuracy", "difference", "paper_std"):
        assert math.isnan(other[name])


def test_a_model_in_a_folder_and_a_benchmark_in_a_file_are_recognised() -> None:
    config = load(
        MINIMAL
        | {
            "models": {"mine": {"source": "local", "path": "models/Qwen2.5-7B-Instruct"}},
            "benchmarks": {"MATH-500": MINIMAL["benchmarks"]["held-out"]},
        }
    )
    table = published_table(MAIN, config)
    assert set(table["benchmark"]) == {"MATH-500"}
    assert len(table) == 9
    assert published_table(MAIN, load(MINIMAL)).empty  # the paper does not have the model
