"""Which tables and figures a grid has: their titles, where the reports show them, and when there are any.

The rules and the page loop over it. A new table is an entry here, a caption in `workflow/report/` and the rule that
writes its CSV; its columns stand where it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.controls import controls
from g2d.experiment.printed import is_of_bridging
from g2d.experiment.samples import sample_files
from g2d.experiment.selection import selecting
from g2d.experiment.trajectories import trajectories

# Headings of Snakemake's report.
RESULTS, ROLLOUTS, COST, PAPER, ADVICE = "1. Results", "2. Rollouts", "3. Cost", "4. The paper", "5. Advice"
# Headings of the page, in its order; the first is for tables without one of their own.
SWEEP = "The sweep"
TRAINING = "Online training"
CONTAMINATION = "Memory or reasoning"
OPEN_ENDED = "Open-ended prompts"
POWER = "What this grid can see"
SYNTHESIS = "Over models and benchmarks"
SECTIONS = (
    "Tables",
    "The frontier",
    SYNTHESIS,
    POWER,
    TRAINING,
    SWEEP,
    OPEN_ENDED,
    CONTAMINATION,
    "Where a gain comes from",
    "The bill",
    "Beside the papers",
    "Advice",
    "Verifier disagreements",
)


def _always(config: Config) -> bool:
    return True


def _factorial(config: Config) -> bool:
    return any(grid.factorial_files(config, model) for model in config.models)


def _equal_compute(config: Config) -> bool:
    varied = any("grpo" in ablation.policies for ablation in config.ablations.values()) or bool(config.regimes)
    return varied and bool(grid.policies(config))


def _regimes(config: Config) -> bool:
    return bool(config.regimes) and bool(grid.policies(config))


def _frontier(config: Config) -> bool:
    return bool(config.regimes or config.frontier) and bool(grid.policies(config))


def _controls(config: Config) -> bool:
    return bool(controls(config)) and bool(grid.policies(config))


def _auto(config: Config) -> bool:
    return bool(grid.auto_warmups(config))


def _training(config: Config) -> bool:
    return bool(config.regimes or config.collapse) and bool(trajectories(config))


def _samples(config: Config) -> bool:
    return bool(sample_files(config))


def _selection(config: Config) -> bool:
    return bool(selecting(config)) and bool(grid.policies(config))


def _sweep(config: Config) -> bool:
    return config.sweep is not None and bool(config.sweep.regimes)


def _contamination(config: Config) -> bool:
    return config.contamination is not None


def _open_ended(config: Config) -> bool:
    return config.open_ended is not None


def _synthesis(config: Config) -> bool:
    from g2d.analysis.synthesis import FEWEST  # with it comes numpy, which those who plan do without

    studies = len(config.models) * len(config.benchmarks)
    return studies >= FEWEST and bool(config.warmup.steps[-1]) and bool(grid.policies(config))


def _advice(config: Config) -> bool:
    return config.probe.compare


@dataclass(frozen=True)
class Table:
    """A table: `results/tables/{name}.csv`, the same as a page, and its caption `workflow/report/{name}.rst`."""

    name: str
    title: str
    chapter: str  # of Snakemake's report
    section: str = SECTIONS[0]  # of the page
    rule: str = "make_tables"  # writes it
    there: Callable[[Config], bool] = _always  # for this configuration


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


TABLES = (
    Table("main", "Table 1: accuracy and cost", RESULTS),
    Table("comparisons", "Which differences are real: paired tests", RESULTS),
    Table("margins", "How much worse than the best every K can be", RESULTS),
    Table("synthesis", "One effect over models and benchmarks", RESULTS, SYNTHESIS, there=_synthesis),
    Table("power", "The smallest difference and margin that can be seen", RESULTS, POWER),
    Table("variance", "Where the variance of differences comes from", RESULTS, POWER),
    Table("decomposition", "Where a gain comes from", RESULTS, "Where a gain comes from"),
    Table("budgets", "Accuracy by token budget", RESULTS, "Where a gain comes from"),
    Table("harvest", "Table 2: informativeness of the harvest", ROLLOUTS),
    Table("correlations", "Table 2: correlation with accuracy", ROLLOUTS),
    Table("ablations", "Table 3: ablations", RESULTS),
    Table("calibration", "Table 4: difficulty calibration", ROLLOUTS),
    Table("disputes", "Verifier: disputed answers", ROLLOUTS, "Verifier disagreements"),
    Table("cost", "The bill by policy and stage", COST, "The bill"),
    Table("published", "The paper's Table 1 beside this grid's", PAPER, "Beside the papers"),
    Table(
        *("bridging", "Bridging Offline and Online RL, Table 1, beside this grid's", PAPER, "Beside the papers"),
        there=is_of_bridging,
    ),
    Table("attempts", "What the grid really cost, failed attempts included", COST, "The bill"),
    Table("factorial", "Level x temperature: the cells", ROLLOUTS, rule="make_factorial", there=_factorial),
    Table("factorial_effects", "Level x temperature: the effects", ROLLOUTS, rule="make_factorial", there=_factorial),
    Table("frontier", "The frontier: accuracy against cost", RESULTS, "The frontier", there=_frontier),
    Table("matched", "What else the tokens of G2D could buy", RESULTS, "The frontier", there=_frontier),
    Table("regimes", "What every regime took and gave", RESULTS, there=_regimes),
    Table("controls", "What a control gets of the gain", RESULTS, there=_controls),
    Table("equal_compute", "Regimes at equal compute", RESULTS, there=_equal_compute),
    Table("samples", "Several answers: pass@k and maj@n", RESULTS, rule="make_sample_table", there=_samples),
    Table("auto", "Warm-up that stops by itself: its probes", ROLLOUTS, there=_auto),
    Table("training", "Step by step", RESULTS, TRAINING, rule="make_training_tables", there=_training),
    Table(
        *("collapses", "Entropy and length: which trainings collapsed", RESULTS, TRAINING),
        rule="make_training_tables",
        there=_training,
    ),
    Table("selection", "Which checkpoint was selected", RESULTS, TRAINING, there=_selection),
    Table("sweep", "What every regime was tuned to", RESULTS, SWEEP, rule="make_sweep_table", there=_sweep),
    Table(
        *("contamination", "Memory or reasoning: questions completed word for word", RESULTS, CONTAMINATION),
        rule="make_contamination_table",
        there=_contamination,
    ),
    Table(
        *("win_rates", "Whose replies are preferred to those of M0", RESULTS, OPEN_ENDED),
        rule="make_win_rates",
        there=_open_ended,
    ),
    Table(
        *("scenarios", "One kind of prompts, or both: Table 3 of arXiv 2506.21495 beside this grid", PAPER, OPEN_ENDED),
        rule="make_win_rates",
        there=_open_ended,
    ),
    Table("advice", "Advice: which K", ADVICE, "Advice", rule="advise", there=_advice),
    Table("advice_levels", "Advice: which levels", ADVICE, "Advice", rule="advise", there=_advice),
    Table("advice_hours", "Advice: device-hours", ADVICE, "Advice", rule="advise", there=_advice),
    Table("advice_check", "Advice: what the grid showed", ADVICE, "Advice", rule="check_advice", there=_advice),
)
FIGURES = (
    Figure("accuracy", "Figure 2: accuracy against K", RESULTS),
    Figure("informativeness", "Figure 3: informativeness against K", ROLLOUTS),
    Figure("gains", "Where a gain comes from", RESULTS),
    Figure("budgets", "Accuracy against the token budget", RESULTS, caption="budgets_figure"),
)


def tables_of(config: Config) -> dict[str, Table]:
    """The tables of a configuration's grid by name, in the order of the reports."""
    return {table.name: table for table in TABLES if table.there(config)}


def left_over(config: Config, folder: Path) -> list[Path]:
    """Tables and their pages in a folder that this configuration does not have: those of another one, now stale.

    Those of the advice are not among them: `snakemake advice` makes them for every configuration.
    """
    advised = {table.name for table in TABLES if table.chapter == ADVICE}
    gone = [table.name for table in TABLES if table.name not in advised | tables_of(config).keys()]
    files = (folder / f"{name}.{ending}" for name in gone for ending in ("csv", "html"))
    return [file for file in files if file.exists()]


def section_of(name: str) -> str:
    """The page's heading for a table."""
    return next((table.section for table in TABLES if table.name == name), SECTIONS[0])
