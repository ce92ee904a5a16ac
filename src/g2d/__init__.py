"""g2d: how much online RL is enough? The G2D experiment (arXiv 2605.21266) as a package of small modules.

Every module is importable without Snakemake and without a GPU; `docs/architecture.md` describes the packages.
`g2d.open("results")` returns the results of a grid as pandas frames.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from g2d.tables.results import Results

__version__ = "0.3.0"


def open(results: str | PathLike[str] = "results") -> Results:
    """Return the results of a grid, as pandas frames that are read on access.

    Raises:
        FileNotFoundError: there is no such folder, or no run has begun in it.
        ConfigError: its `config.yaml` cannot be read.
    """
    from g2d.tables.results import Results  # pandas comes with it

    return Results(results)
