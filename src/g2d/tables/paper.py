"""What the papers printed, as data, and Table 1 of the G2D paper beside a grid's own."""

from __future__ import annotations

from collections.abc import Hashable
from importlib import resources
from io import StringIO
from typing import Any

import pandas as pd

from g2d.experiment.config import Config
from g2d.experiment.printed import benchmarks_of, models_of
from g2d.tables.evaluations import ROW_COLUMNS
from g2d.tables.frames import floats, frame

POLICIES = {"SFT": "base", "DPO": "dpo", "G2D": "g2d", "GRPO": "grpo"}  # Table 1's names: ours
BENCHMARKS = ("math500", "gsm8k")  # its columns of accuracies
OWN = ("accuracy", "ci_low", "ci_high", "device_hours")
PUBLISHED_COLUMNS = {
    **ROW_COLUMNS,
    **floats("paper_accuracy", "paper_std", *OWN[:3], "difference", "paper_gpu_hours", OWN[3]),
}


def published(name: str) -> pd.DataFrame:
    """A published table, every cell the text that was printed; its source is in the file's first line."""
    text = (resources.files("g2d.tables") / "published" / f"{name}.csv").read_text(encoding="utf-8")
    return pd.read_csv(StringIO(text), comment="#", dtype=str, keep_default_na=False)


def published_table(main: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Table 1 of the G2D paper beside a grid's own, for the models and benchmarks that both have.

    A model is the paper's if its Hub id, or its folder, ends with the paper's name for it; a benchmark, if its name or
    its data set's does, whatever the punctuation.

    Args:
        main: from `g2d.tables.accuracy.main_table`.
        config: the grid's configuration.

    Returns:
        `PUBLISHED_COLUMNS`, one row per published row and benchmark: accuracies in 0..1, difference = accuracy -
        paper_accuracy; the grid's columns are null where it has no such policy. Empty if the paper has none of its
        models.
    """
    paper = published("g2d_table1")
    own = {_row(row): row for row in main.to_dict("records")}
    rows = []
    for model, name in models_of(config, set(paper["model"])).items():
        for printed in paper[paper["model"] == name].to_dict("records"):
            for benchmark, column in benchmarks_of(config, BENCHMARKS):
                k, group_size = (int(printed[name] or 0) for name in ("K", "group_size"))
                at = {"model": model, "policy": POLICIES[printed["method"]], "K": k, "group_size": group_size or None}
                found = own.get(_row(at | {"benchmark": benchmark}), {})
                accuracy = float(printed[column]) / 100
                rows.append(
                    {
                        **at,
                        "benchmark": benchmark,
                        "paper_accuracy": accuracy,
                        "paper_std": _number(printed.get(f"{column}_std"), 100),
                        "paper_gpu_hours": _number(printed["gpu_hours"]),
                        **{name: found.get(name) for name in OWN},
                        "difference": found["accuracy"] - accuracy if found else None,
                    }
                )
    return frame(rows, PUBLISHED_COLUMNS)


def _row(values: dict[Hashable, Any] | dict[str, Any]) -> tuple[Any, ...]:
    """What names a row of Table 1; nulls, which equal nothing, become 0."""
    return tuple(0 if pd.isna(values[name]) else values[name] for name in ROW_COLUMNS)


def _number(text: str | None, divisor: float = 1) -> float | None:
    return float(text) / divisor if text else None
