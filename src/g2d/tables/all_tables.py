"""Tables and figures: titles, sections of the page, and the configurations that have them.

CONTRIBUTING.md describes how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g2d.grid.grid import Grid
from g2d.tables.reads import (
    ANSWER_COSTS,
    ANSWERS,
    COSTS,
    HARVESTED,
    LEVELS,
    LOGS,
    PAIRED,
    PROBES,
    RECORDS,
    REPLIES,
    REPLY_COSTS,
    SAMPLE_COSTS,
    SAMPLES,
    TEMPERATURES,
    TRAINING_LOGS,
    TRAINING_ROLLOUTS,
    Read,
)

if TYPE_CHECKING:
    import pandas as pd

# Headings of the page, in order; the first is for tables without a section.
OTHERS = "Tables"
TRAINING = "Online training"
OPEN_ENDED = "Open-ended prompts"
GAINS = "Decomposition of gains"
BILL = "Cost"
BESIDE = "Published results"
SECTIONS = (OTHERS, TRAINING, OPEN_ENDED, GAINS, BILL, BESIDE)


@dataclass(frozen=True)
class Chart:
    """A chart above a table of the page, drawn for each group of its rows.

    Args:
        function: draws a group, as "module:function" of the room `g2d.report`. Its arguments are the rows and the
            styles of policies; it returns None if there is nothing to draw.
        by: columns to group by, separated by spaces.
        folded: shown on a click.
    """

    function: str
    by: str
    folded: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the page.

    Args:
        function: computes it, as "module:function" of this room (planning must not import pandas).
        arguments: its arguments, separated by spaces: attributes of `g2d.tables.inputs.Inputs`.
        reads: files behind these arguments; the rule has them as inputs.
        section: heading on the page.
        charts: charts above the table.
        enabled: whether a configuration has it.
        printed: whether the page has its rows, or only its charts and a link.
    """

    name: str
    title: str
    function: str
    arguments: str
    reads: tuple[Read[Any], ...]
    section: str = OTHERS
    charts: tuple[Chart, ...] = ()
    enabled: Callable[[Grid], bool] = lambda grid: True
    printed: bool = True

    @property
    def build(self) -> Callable[..., pd.DataFrame]:
        module, _, function = self.function.partition(":")
        build: Callable[..., pd.DataFrame] = getattr(import_module(f"g2d.tables.{module}"), function)
        return build

    @property
    def columns(self) -> Mapping[str, str]:
        """Types of its columns by name."""
        columns: Mapping[str, str] = self.build.columns  # type: ignore[attr-defined] # set by `g2d.tables.frames.table_of`
        return columns


@dataclass(frozen=True)
class Figure:
    name: str
    title: str


# fmt: off
TABLES = (
    Table("main", "Table 1: accuracy and cost", "accuracy:main_table",
          "answers device_hours calibrated spent select_by", (ANSWERS, RECORDS, COSTS, TRAINING_LOGS)),
    Table("comparisons", "Paired tests between policies", "families:comparison_table",
          "tested", (ANSWERS, RECORDS),
          charts=(Chart("charts:differences_of_k", "model benchmark"),
                  Chart("charts:other_differences", "model benchmark", folded=True))),
    Table("decomposition", "Gains by finishing, format and reasoning", "accuracy:decomposition_table",
          "answers", (ANSWERS, RECORDS), section=GAINS,
          charts=(Chart("charts:gains", "model benchmark"),)),
    Table("harvest", "Table 2: informativeness of the harvests", "harvest:harvest_table",
          "summaries counts", (HARVESTED, PAIRED),
          charts=(Chart("charts:informativeness_by_k", "model"),)),
    Table("correlations", "Table 2: correlation of informativeness with accuracy", "harvest:correlation_table",
          "points", (HARVESTED, PAIRED, ANSWERS, RECORDS), printed=False),
    Table("calibration", "Table 4: difficulty by level", "harvest:calibration_table",
          "levels", (LEVELS,),
          charts=(Chart("charts:difficulty_by_level", "model"),)),
    Table("cost", "Cost by policy and stage", "trainings:cost_table",
          "charged", (RECORDS, COSTS, ANSWER_COSTS, SAMPLE_COSTS, REPLY_COSTS), section=BILL,
          charts=(Chart("charts:cost_by_stage", "model"),), printed=False),
    Table("published", "Table 1 of the paper and of this grid", "paper:published_table",
          "main config", (ANSWERS, RECORDS, COSTS, TRAINING_LOGS), section=BESIDE),
    Table("factorial", "Difficulty by level and temperature", "harvest:factorial_table",
          "temperatures", (TEMPERATURES,), enabled=lambda grid: bool(TEMPERATURES.files(grid))),
    Table("samples", "pass@k and maj@n", "samples:sample_table",
          "sampled equal", (SAMPLES, RECORDS),
          charts=(Chart("charts:pass_at_k", "model benchmark"),),
          enabled=lambda grid: bool(grid.sampled or grid.sampled_beside)),
    Table("auto", "Probes of the automatic warm-up", "trainings:auto_table",
          "probes", (PROBES,), enabled=lambda grid: bool(grid.automatic_warmups)),
    Table("training", "Training curves", "trainings:training_table",
          "logs", (LOGS, TRAINING_ROLLOUTS), section=TRAINING,
          charts=(Chart("charts:course", "model measure"),),
          enabled=lambda grid: bool(grid.chains), printed=False),
    Table("selection", "Checkpoint selection", "accuracy:selection_table",
          "answers select_by", (ANSWERS, RECORDS), section=TRAINING,
          enabled=lambda grid: grid.config.select_by is not None),
    Table("win_rates", "Win rate against M0", "win_rates:win_rate_table",
          "replies", (REPLIES, RECORDS), section=OPEN_ENDED, enabled=lambda grid: grid.config.open_ended is not None),
)
# fmt: on
FIGURES = (
    Figure("accuracy", "Figure 2: accuracy against K"),
    Figure("informativeness", "Figure 3: informativeness against K"),
    Figure("gains", "Gains by finishing, format and reasoning"),
)


def table(name: str) -> Table:
    """Return a table by name; raises KeyError."""
    for table in TABLES:
        if table.name == name:
            return table
    raise KeyError(name)


def tables_of(grid: Grid) -> dict[str, Table]:
    return {one.name: one for one in TABLES if one.enabled(grid)}


def reads_of(tables: Iterable[Table]) -> dict[str, Read[Any]]:
    """Return all that these tables read, by name."""
    reads: dict[str, Read[Any]] = {}
    for one in tables:
        for read in one.reads:
            reads[read.name] = read
    return reads


def left_over(grid: Grid, folder: Path) -> list[Path]:
    """Return files in a folder of tables that belong to other configurations."""
    files = []
    for table in TABLES:
        file = folder / f"{table.name}.csv"
        if file.exists() and not table.enabled(grid):
            files.append(file)
    return sorted(files)


def figure(name: str) -> Figure:
    """Return a figure by name; raises KeyError."""
    for figure in FIGURES:
        if figure.name == name:
            return figure
    raise KeyError(name)
