"""What `snakemake advice` prints: the advice, from calibration and probe, and what the grid has measured since."""

from __future__ import annotations

from pathlib import Path

from g2d.status.screen import hours_to_go
from g2d.status.snapshot import Grid


def advice_since(advice: str, results: str) -> str:
    """The text of the advice, and the GPU-hours of what is left of the grid at the rates of all that it has measured.

    Args:
        advice: the file.
        results: the folder of the grid.
    """
    text = Path(advice).read_text(encoding="utf-8")
    for line in hours_to_go(Grid(Path(results)).look().ahead.gpu_hours):
        text += f"\nThe whole grid, with all that it has measured since the probe: {line}\n"
    return text
