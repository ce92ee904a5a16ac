"""Rule draw_figures: Figures 2 and 3 of the paper, where gains come from, and accuracy by token budget."""

from g2d.jobs.stage import stage
from g2d.report.figures import accuracy_figure, budget_figure, gain_figure, informativeness_figure, save_figure
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import read_table
from g2d.tables.harvest import HARVEST_COLUMNS
from g2d.tables.parts import BUDGET_COLUMNS, DECOMPOSITION_COLUMNS


def main(snakemake):
    with stage(snakemake):
        given, benchmark, note = snakemake.input, snakemake.params.benchmark, snakemake.params.note
        results, harvest = read_table(given.main, MAIN_COLUMNS), read_table(given.harvest, HARVEST_COLUMNS)
        save_figure(snakemake.output.accuracy, accuracy_figure(results, benchmark, note))
        decomposition = read_table(given.decomposition, DECOMPOSITION_COLUMNS)
        budgets = read_table(given.budgets, BUDGET_COLUMNS)
        save_figure(snakemake.output.gains, gain_figure(decomposition, benchmark, note))
        save_figure(snakemake.output.budgets, budget_figure(budgets, benchmark, note))
        save_figure(snakemake.output.informativeness, informativeness_figure(results, harvest, benchmark, note))


if __name__ == "__main__":
    main(snakemake)
