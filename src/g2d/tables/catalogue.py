"""Which tables and figures a grid has: their titles, where the reports show them, and when there are any.

The rules and the page loop over it. A new table is a function in a module of this package, a line here that names the
function and what it reads, and a caption in `workflow/report/`, which explains the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from g2d.experiment import grid
from g2d.experiment.arms import asked_for
from g2d.experiment.config import Config

# Headings of Snakemake's report.
RESULTS, ROLLOUTS, COST, PAPER, ADVICE = "1. Results", "2. Rollouts", "3. Cost", "4. The paper", "5. Advice"
# Headings of the page, in its order; the first is for tables without one of their own.
OTHERS = "Tables"
SWEEP = "The sweep"
TRAINING = "Online training"
CONTAMINATION = "Memory or reasoning"
OPEN_ENDED = "Open-ended prompts"
POWER = "What this grid can see"
RACE = "Looks"
SYNTHESIS = "Over models and benchmarks"
FRONTIER = "The frontier"
GAINS = "Where a gain comes from"
BILL = "The bill"
BESIDE = "Beside the papers"
ADVISED = "Advice"
DISPUTES = "Verifier disagreements"
SECTIONS = (
    *(OTHERS, FRONTIER, RACE, SYNTHESIS, POWER, TRAINING, SWEEP, OPEN_ENDED, CONTAMINATION),
    *(GAINS, BILL, BESIDE, ADVISED, DISPUTES),
)


def _factorial(config: Config) -> bool:
    return any(grid.factorial_files(config, model) for model in config.models)


def _training(config: Config) -> bool:
    return bool(asked_for(config, "entry") or config.collapse) and bool(grid.trajectories(config))


def _frontier(config: Config) -> bool:
    return bool(asked_for(config, "entry") or config.frontier) and bool(grid.policies(config))


def _open_ended(config: Config) -> bool:
    return config.open_ended is not None


def _synthesis(config: Config) -> bool:
    from g2d.analysis.synthesis import FEWEST  # with it comes numpy, which those who plan do without

    studies = len(config.models) * len(config.benchmarks)
    return studies >= FEWEST and bool(config.warmup.steps[-1]) and bool(grid.policies(config))


@dataclass(frozen=True)
class Table:
    """A table: `results/tables/{name}.csv`, the same as a page, and its caption `workflow/report/{name}.rst`."""

    name: str
    title: str
    chapter: str  # of Snakemake's report
    function: str = ""  # computes it: "module:function" of this package; empty where its rule has a script of its own
    reads: str = ""  # its arguments, separated by spaces: attributes of `g2d.tables.inputs.Inputs`
    section: str = OTHERS  # of the page
    enabled: Callable[[Config], bool] = lambda config: True  # for this configuration
    rule: str = "make_tables"  # writes it

    @property
    def build(self) -> Any:
        """Its function; None where there is none."""
        module, _, function = self.function.partition(":")
        return getattr(import_module(f"g2d.tables.{module}"), function) if function else None


@dataclass(frozen=True)
class Figure:
    """A figure: `results/figures/{name}.svg`."""

    name: str
    title: str
    chapter: str  # of Snakemake's report
    caption: str = ""  # in `workflow/report/`, where the name is a table's too

    @property
    def caption_name(self) -> str:
        """Name of its caption in Snakemake's report."""
        return self.caption or self.name


# Of every table: what a reader sees, then what makes it.
# fmt: off
TABLES = (
    Table("main", "Table 1: accuracy and cost", RESULTS,
          "accuracy:main_table", "answers device_hours calibrated"),
    Table("comparisons", "Which differences are real: paired tests", RESULTS,
          "families:comparison_table", "answers"),
    Table("margins", "How much worse than the best every K can be", RESULTS,
          "families:margin_table", "answers margin"),
    Table("synthesis", "One effect over models and benchmarks", RESULTS,
          "synthesis:synthesis_table", "answers", section=SYNTHESIS, enabled=_synthesis),
    Table("looks", "Every comparison at every look", RESULTS,
          "looks:looks_table", "config looks", section=RACE, enabled=lambda config: config.looks is not None),
    Table("power", "The smallest difference and margin that can be seen", RESULTS,
          "power:power_table", "answers margin", section=POWER),
    Table("variance", "Where the variance of differences comes from", RESULTS,
          "power:variance_table", "answers", section=POWER),
    Table("decomposition", "Where a gain comes from", RESULTS,
          "parts:decomposition_table", "answers", section=GAINS),
    Table("budgets", "Accuracy by token budget", RESULTS,
          "parts:budget_table", "answers", section=GAINS),
    Table("drift", "What else changed: distance from M0", RESULTS,
          "drift:drift_table", "answers drifted", section=GAINS),
    Table("equal_gain", "Is online training closer to M0 at equal gain?", RESULTS,
          "drift:equal_gain_table", "answers drifted", section=GAINS,
          enabled=lambda config: config.drift is not None and bool(grid.policies(config))),
    Table("harvest", "Table 2: informativeness of the harvest", ROLLOUTS,
          "harvest:harvest_table", "summaries counts"),
    Table("correlations", "Table 2: correlation with accuracy", ROLLOUTS,
          "harvest:correlation_table", "points"),
    Table("ablations", "Table 3: ablations", RESULTS,
          "accuracy:ablation_table", "answers device_hours changes measured"),
    Table("calibration", "Table 4: difficulty calibration", ROLLOUTS,
          "harvest:calibration_table", "levels"),
    Table("disputes", "Verifier: disputed answers", ROLLOUTS,
          "harvest:dispute_table", "judged", section=DISPUTES),
    Table("cost", "The bill by policy and stage", COST,
          "bills:cost_table", "billed attempts price", section=BILL),
    Table("published", "The paper's Table 1 beside this grid's", PAPER,
          "paper:published_table", "main config", section=BESIDE),
    Table("attempts", "What the grid really cost, failed attempts included", COST,
          "bills:attempt_table", "attempts", section=BILL),
    Table("factorial", "Level x temperature: the cells", ROLLOUTS,
          "harvest:factorial_table", "temperatures", enabled=_factorial, rule="make_factorial"),
    Table("frontier", "The frontier: accuracy against cost", RESULTS,
          "frontier:frontier_table", "answers paid margin calibrated price", section=FRONTIER, enabled=_frontier),
    Table("regimes", "What every regime took and gave", RESULTS,
          "bills:regime_table", "answers device_hours spent",
          enabled=lambda config: bool(asked_for(config, "entry")) and bool(grid.policies(config))),
    Table("controls", "What a control gets of the gain", RESULTS,
          "controls:controls_table", "answers controls seen",
          enabled=lambda config: bool(grid.controls(config)) and bool(grid.policies(config))),
    Table("samples", "Several answers: pass@k and maj@n", RESULTS,
          "samples:sample_table", "sampled equal", enabled=lambda config: bool(grid.sample_files(config)),
          rule="make_sample_table"),
    Table("auto", "Warm-up that stops by itself: its probes", ROLLOUTS,
          "harvest:auto_table", "probes", enabled=lambda config: bool(grid.auto_warmups(config))),
    Table("saturation", "Where online training saturates", RESULTS,
          "dynamics:saturation_table", "answers", section=TRAINING, enabled=grid.has_curves),
    Table("training", "Step by step", RESULTS,
          "dynamics:training_table", "logs", section=TRAINING, enabled=_training, rule="make_training_tables"),
    Table("collapses", "Entropy and length: which trainings collapsed", RESULTS,
          "dynamics:collapse_table", "logs collapse_share", section=TRAINING, enabled=_training,
          rule="make_training_tables"),
    Table("selection", "Which checkpoint was selected", RESULTS,
          "choices:selection_table", "selections", section=TRAINING,
          enabled=lambda config: bool(grid.selecting(config)) and bool(grid.policies(config))),
    Table("sweep", "What every regime was tuned to", RESULTS,
          "choices:sweep_table", "candidates", section=SWEEP,
          enabled=lambda config: config.sweep is not None and bool(config.sweep.regimes), rule="make_sweep_table"),
    Table("contamination", "Memory or reasoning: questions completed word for word", RESULTS,
          "contamination:contamination_table", "continued questions fresh shown_share", section=CONTAMINATION,
          enabled=lambda config: config.contamination is not None, rule="make_contamination_table"),
    Table("win_rates", "Whose replies are preferred to those of M0", RESULTS,
          "win_rates:win_rate_table", "replies prompts", section=OPEN_ENDED, enabled=_open_ended,
          rule="make_win_rates"),
    *(
        Table(name, title, ADVICE, section=ADVISED, rule=rule, enabled=lambda config: config.probe.compare)
        for name, title, rule in (
            ("advice", "Advice: which K", "advise"),
            ("advice_hours", "Advice: device-hours", "advise"),
            ("advice_check", "Advice: what the grid showed", "check_advice"),
        )
    ),
)
# fmt: on
FIGURES = (
    Figure("accuracy", "Figure 2: accuracy against K", RESULTS),
    Figure("informativeness", "Figure 3: informativeness against K", ROLLOUTS),
    Figure("gains", "Where a gain comes from", RESULTS),
    Figure("budgets", "Accuracy against the token budget", RESULTS, caption="budgets_figure"),
)


def table(name: str) -> Table:
    """The table of that name; KeyError without one."""
    return {one.name: one for one in TABLES}[name]


def tables_of(config: Config) -> dict[str, Table]:
    """The tables of a configuration's grid by name, in the order of the reports."""
    return {one.name: one for one in TABLES if one.enabled(config)}


def tables_of_rule(config: Config, rule: str) -> list[Table]:
    """The tables that a rule writes; all of them where the configuration has none, and the rule therefore no job."""
    own = [one for one in TABLES if one.rule == rule]
    return [one for one in own if one.enabled(config)] or own


def left_over(config: Config, folder: Path) -> list[Path]:
    """Tables and their pages in a folder that this configuration does not have: those of another one, now stale. The
    advice's are not among them: `snakemake advice` makes them for every configuration."""
    advised = {table.name for table in TABLES if table.chapter == ADVICE}
    gone = [table.name for table in TABLES if table.name not in advised | tables_of(config).keys()]
    files = (folder / f"{name}.{ending}" for name in gone for ending in ("csv", "html"))
    return [file for file in files if file.exists()]


def section_of(name: str) -> str:
    """The page's heading for a table."""
    return next((table.section for table in TABLES if table.name == name), OTHERS)
