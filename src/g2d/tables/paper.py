"""Published results, and Table 1 of the G2D paper beside the grid's."""

from __future__ import annotations

import re
from importlib import resources
from io import StringIO
from pathlib import PurePath

import pandas as pd

from g2d.config.sections import Config
from g2d.policies.model_keys import ModelSource
from g2d.problems.problem_keys import ProblemSource
from g2d.tables.evaluations import ROW
from g2d.tables.frames import Cells, Rows, columns, table_of

POLICIES = {"SFT": "base", "DPO": "dpo", "G2D": "g2d", "GRPO": "grpo"}  # our names of the methods in Table 1
BENCHMARKS = ("math500", "gsm8k")  # columns of Table 1
MEASURED = ("accuracy", "ci_low", "ci_high", "device_hours")
PUBLISHED_COLUMNS = columns(
    ROW,
    "paper_accuracy paper_std accuracy ci_low ci_high difference paper_gpu_hours device_hours",
)


def published(name: str) -> pd.DataFrame:
    text = (resources.files("g2d.tables") / "published" / f"{name}.csv").read_text(encoding="utf-8")
    return pd.read_csv(StringIO(text), comment="#", dtype=str, keep_default_na=False)


@table_of(PUBLISHED_COLUMNS)
def published_table(main: pd.DataFrame, config: Config) -> Rows:
    """A row per row of the paper's Table 1 and benchmark that the grid has too."""
    paper = published("g2d_table1")
    grid = {_identity(row): row for row in main.to_dict("records")}
    for model, source in config.models.items():
        for printed in paper[paper["model"] == _last_name(source)].to_dict("records"):
            for benchmark, column in _benchmarks(config):
                group_size = int(printed["group_size"] or 0)
                row: dict[str, object] = {
                    "model": model,
                    "policy": POLICIES[printed["method"]],
                    "K": int(printed["K"] or 0),
                    "group_size": group_size or None,
                    "benchmark": benchmark,
                }
                measured = grid.get(_identity(row))
                paper_accuracy = float(printed[column]) / 100
                row["paper_accuracy"] = paper_accuracy
                row["paper_std"] = _number(printed.get(f"{column}_std"), 100)
                row["paper_gpu_hours"] = _number(printed["gpu_hours"])
                if measured is not None:
                    for name in MEASURED:
                        row[name] = measured[name]
                    row["difference"] = measured["accuracy"] - paper_accuracy
                yield row


def _identity(row: Cells) -> tuple[object, ...]:
    cells: list[object] = []
    for name in ROW.split():
        if pd.isna(row[name]):
            cells.append(0)  # because nulls are not equal
        else:
            cells.append(row[name])
    return tuple(cells)


def _number(text: str | None, divisor: float = 1) -> float | None:
    if not text:
        return None
    return float(text) / divisor


def _benchmarks(config: Config) -> list[tuple[str, str]]:
    pairs = []
    for name, source in config.benchmarks.items():
        names = {_letters_and_digits(name), _letters_and_digits(_last_name(source))}
        for column in BENCHMARKS:
            if column in names:
                pairs.append((name, column))
    return pairs


def _letters_and_digits(text: str | None) -> str:
    return re.sub(r"[^a-z0-9]", "", (text or "").lower())


def _last_name(source: ModelSource | ProblemSource) -> str | None:
    name = getattr(source, "id", None) or getattr(source, "path", None)
    if not name:
        return None
    return PurePath(name).name
