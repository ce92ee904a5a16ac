"""A warning if few prompts of a calibration have mixed outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def mixed_outcomes(wildcards: Mapping[str, str], output: Sequence[str]) -> list[str]:
    """Return the lines to print after `select_training_set`."""
    from g2d.analysis.calibration import LEVEL_COLUMNS, few_mixed
    from g2d.tables.frames import read_table

    levels = next(path for path in output if Path(path).name == "levels.csv")
    warning = few_mixed(read_table(levels, LEVEL_COLUMNS))
    return [f"  {wildcards['model']}: {warning}"] if warning else []
