"""Log the tables of a finished grid to W&B, if its trainings report there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from g2d.regimes.run.tracking import prepare_wandb
from g2d.tables.results import Results


def log_tables(results: str | Path = "results") -> None:
    """Log all tables as one W&B run named "tables"; raises `wandb.Error` with `WANDB_MODE=online` and no account."""
    prepare_wandb()
    import wandb

    with wandb.init(name="tables", job_type="tables", settings=wandb.Settings(silent=True)) as run:
        run.log({f"tables/{name}": _table(frame) for name, frame in Results(results).tables.items()})


def _table(frame: pd.DataFrame) -> Any:
    import wandb

    columns: list[Any] = list(frame)
    rows: list[Any] = []
    for row in frame.itertuples(index=False):
        rows.append([_or_none(value) for value in row])
    return wandb.Table(columns=columns, data=rows, allow_mixed_types=True)


def _or_none(value: Any) -> Any:
    return None if pd.isna(value) else value
