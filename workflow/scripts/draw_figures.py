"""Rule draw_figures: Figures 2 and 3 of the paper, where gains come from, and accuracy by token budget."""

from g2d.experiment.config import load
from g2d.jobs.stage import stage
from g2d.report.figures import accuracy_figure, budget_figure, gain_figure, informativeness_figure, save_figure
from g2d.report.marks import marks
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import read_table
from g2d.tables.harvest import HARVEST_COLUMNS
from g2d.tables.parts import BUDGET_COLUMNS, DECOMPOSITION_COLUMNS

NOTHING = "Nothing was evaluated."
NO_BUDGETS = "No token budgets were evaluated (evaluation.token_budgets)."


def main(snakemake):
    with stage(snakemake):
        given, out, benchmark, note = (
            snakemake.input,
            snakemake.output,
            snakemake.params.benchmark,
            snakemake.params.note,
        )
        known = marks(load(snakemake.config))  # the grid decides, and with it the tables
        results, harvest = read_table(given.main, MAIN_COLUMNS), read_table(given.harvest, HARVEST_COLUMNS)
        decomposition = read_table(given.decomposition, DECOMPOSITION_COLUMNS)
        budgets = read_table(given.budgets, BUDGET_COLUMNS)
        save_figure(out.accuracy, accuracy_figure(results, benchmark, known), note, NOTHING)
        save_figure(out.informativeness, informativeness_figure(results, harvest, benchmark, known), note, NOTHING)
        save_figure(out.gains, gain_figure(decomposition, benchmark), note, NOTHING)
        save_figure(out.budgets, budget_figure(budgets, benchmark, known), note, NO_BUDGETS)


if __name__ == "__main__":
    main(snakemake)
