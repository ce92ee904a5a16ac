"""Published results as data, and Table 1 of the G2D paper compared with the grid."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from importlib import resources
from io import StringIO
from pathlib import PurePath
from typing import Any

import pandas as pd

from g2d.experiment.config import Config
from g2d.policies.settings import ModelSource
from g2d.problems.settings import ProblemSource
from g2d.tables.evaluations import ROW
from g2d.tables.frames import Rows, columns, table_of

POLICIES = {"SFT": "base", "DPO": "dpo", "G2D": "g2d", "GRPO": "grpo"}  # Table 1's names: ours
BENCHMARKS = ("math500", "gsm8k")  # its columns of accuracies
OWN = ("accuracy", "ci_low", "ci_high")
PUBLISHED_COLUMNS = columns(ROW, "paper_accuracy paper_std", *OWN, "difference paper_gpu_hours device_hours")


def published(name: str) -> pd.DataFrame:
    """A published table, every cell the text that was printed; its source is in the file's first line."""
    text = (resources.files("g2d.tables") / "published" / f"{name}.csv").read_text(encoding="utf-8")
    return pd.read_csv(StringIO(text), comment="#", dtype=str, keep_default_na=False)


@table_of(PUBLISHED_COLUMNS)
def published_table(main: pd.DataFrame, config: Config) -> Rows:
    """Table 1 of the G2D paper beside a grid's own, for the models and benchmarks that both have; the grid's columns
    are null where it has no such policy."""
    paper = published("g2d_table1")
    own = {_row(row): row for row in main.to_dict("records")}
    for model, name in models_of(config, set(paper["model"])).items():
        for printed in paper[paper["model"] == name].to_dict("records"):
            for benchmark, column in benchmarks_of(config, BENCHMARKS):
                k, group_size = (int(printed[name] or 0) for name in ("K", "group_size"))
                at = {"model": model, "policy": POLICIES[printed["method"]], "K": k, "group_size": group_size or None}
                found = own.get(_row(at | {"benchmark": benchmark}), {})
                yield {
                    **at,
                    "benchmark": benchmark,
                    "paper_std": _number(printed.get(f"{column}_std"), 100),
                    "paper_gpu_hours": _number(printed["gpu_hours"]),
                    **_beside(float(printed[column]) / 100, found),
                    "device_hours": found.get("device_hours"),
                }


def _beside(printed: float, found: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A printed accuracy, the grid's own (null where it has none), and their difference."""
    own = {name: found.get(name) for name in OWN}
    return {"paper_accuracy": printed, **own, "difference": found["accuracy"] - printed if found else None}


def _row(values: dict[Hashable, Any] | dict[str, Any]) -> tuple[Any, ...]:
    """What names a row of Table 1; nulls, which equal nothing, become 0."""
    return tuple(0 if pd.isna(values[name]) else values[name] for name in ROW.split())


def _number(text: str | None, divisor: float = 1) -> float | None:
    return float(text) / divisor if text else None


def models_of(config: Config, names: Collection[str]) -> dict[str, str]:
    """Models of the grid that a paper has, with the paper's names for them."""
    called = {model: _last_name(source) for model, source in config.models.items()}
    return {model: name for model, name in called.items() if name is not None and name in names}


def benchmarks_of(config: Config, columns: Collection[str]) -> list[tuple[str, str]]:
    """Benchmarks of the grid that a paper has, with their columns in its table."""
    found = []
    for name, source in config.benchmarks.items():
        names = {re.sub(r"[^a-z0-9]", "", str(text).lower()) for text in (name, _last_name(source))}
        found += [(name, column) for column in columns if column in names]
    return found


def _last_name(source: ModelSource | ProblemSource) -> str | None:
    """What a Hub id or a folder ends with."""
    named = getattr(source, "id", None) or getattr(source, "path", None)
    return PurePath(named).name if named else None
