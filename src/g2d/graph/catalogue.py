"""Tables and figures: titles, sections of the page, and the configurations that have them.

CONTRIBUTING.md describes how to add one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from g2d.experiment import grid
from g2d.experiment.config import Config

# Headings of the page, in order; the first is for tables without a section.
OTHERS = "Tables"
TRAINING = "Online training"
OPEN_ENDED = "Open-ended prompts"
GAINS = "Decomposition of gains"
BILL = "Cost"
BESIDE = "Published results"
SECTIONS = (OTHERS, TRAINING, OPEN_ENDED, GAINS, BILL, BESIDE)


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    function: str  # computes it, as "module:function"
    reads: str  # its arguments, separated by spaces: attributes of `g2d.tables.inputs.Inputs`
    section: str = OTHERS  # of the page
    enabled: Callable[[Config], bool] = lambda config: True  # for this configuration

    @property
    def build(self) -> Any:
        module, _, function = self.function.partition(":")
        return getattr(import_module(f"g2d.tables.{module}"), function)


@dataclass(frozen=True)
class Figure:
    name: str
    title: str


# fmt: off
TABLES = (
    Table("main", "Table 1: accuracy and cost",
          "accuracy:main_table", "answers device_hours calibrated spent changes select_by"),
    Table("comparisons", "Paired tests between policies",
          "families:comparison_table", "tested"),
    Table("decomposition", "Gains by finishing, format and reasoning",
          "parts:decomposition_table", "answers", section=GAINS),
    Table("harvest", "Table 2: informativeness of the harvests",
          "harvest:harvest_table", "summaries counts"),
    Table("correlations", "Table 2: correlation of informativeness with accuracy",
          "harvest:correlation_table", "points"),
    Table("calibration", "Table 4: difficulty by level",
          "harvest:calibration_table", "levels"),
    Table("cost", "Cost by policy and stage",
          "costs:cost_table", "charged", section=BILL),
    Table("published", "Table 1 of the paper and of this grid",
          "paper:published_table", "main config", section=BESIDE),
    Table("factorial", "Difficulty by level and temperature",
          "harvest:factorial_table", "temperatures",
          enabled=lambda config: any(grid.factorial_files(config, model) for model in config.models)),
    Table("samples", "pass@k and maj@n",
          "samples:sample_table", "sampled equal", enabled=lambda config: bool(grid.sample_files(config))),
    Table("auto", "Probes of the automatic warm-up",
          "harvest:auto_table", "probes", enabled=lambda config: bool(grid.auto_warmups(config))),
    Table("training", "Training curves",
          "dynamics:training_table", "logs", section=TRAINING, enabled=lambda config: bool(grid.trajectories(config))),
    Table("selection", "Checkpoint selection",
          "selection:selection_table", "answers select_by", section=TRAINING,
          enabled=lambda config: config.select_by is not None),
    Table("win_rates", "Win rate against M0",
          "win_rates:win_rate_table", "replies prompts", section=OPEN_ENDED,
          enabled=lambda config: config.open_ended is not None),
)
# fmt: on
FIGURES = (
    Figure("accuracy", "Figure 2: accuracy against K"),
    Figure("informativeness", "Figure 3: informativeness against K"),
    Figure("gains", "Gains by finishing, format and reasoning"),
)


def table(name: str) -> Table:
    """Return a table by name; raises KeyError."""
    return {one.name: one for one in TABLES}[name]


def tables_of(config: Config) -> dict[str, Table]:
    return {one.name: one for one in TABLES if one.enabled(config)}


def left_over(config: Config, folder: Path) -> list[Path]:
    """Return files in a folder of tables that belong to other configurations."""
    others = {table.name for table in TABLES} - tables_of(config).keys()
    files = [folder / f"{name}.csv" for name in sorted(others)]
    return [file for file in files if file.exists()]


def figure(name: str) -> Figure:
    """Return a figure by name; raises KeyError."""
    return {one.name: one for one in FIGURES}[name]


def section_of(name: str) -> str:
    return next((table.section for table in TABLES if table.name == name), OTHERS)
