"""Table 4: how hard the pool's levels are for M0, of all models."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.analysis.factorial import factorial_cells, factorial_effects

CALIBRATION_COLUMNS = {"model": "object", **LEVEL_COLUMNS}


def calibration_table(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Table 4 of every model: the frames of `calibration.with_mixes` below each other, after a column `model`."""
    frames = [frame.assign(model=model)[["model", *frame.columns]] for model, frame in tables.items()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["model"])


def factorial_table(rollouts: Mapping[str, Mapping[float, pd.DataFrame]]) -> pd.DataFrame:
    """`factorial_cells` of every model, from its rollouts by temperature."""
    return pd.concat([factorial_cells(model, own) for model, own in rollouts.items()])


def factorial_effect_table(rollouts: Mapping[str, Mapping[float, pd.DataFrame]]) -> pd.DataFrame:
    """`factorial_effects` of every model, from its rollouts by temperature."""
    return pd.concat([factorial_effects(model, own) for model, own in rollouts.items()])
