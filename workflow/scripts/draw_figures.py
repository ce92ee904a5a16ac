"""Rule draw_figures: Figures 2 and 3 of the paper, where gains come from, and accuracy by token budget."""

from g2d.jobs.stage import stage
from g2d.report.figures import accuracy_figure, budget_figure, gain_figure, informativeness_figure, save_figure
from g2d.tables.tables import read_table


def main(snakemake):
    with stage(snakemake):
        results, harvest = read_table(snakemake.input.main), read_table(snakemake.input.harvest)
        benchmark, note = snakemake.params.benchmark, snakemake.params.note
        save_figure(snakemake.output.accuracy, accuracy_figure(results, benchmark, note))
        decomposition, budgets = read_table(snakemake.input.decomposition), read_table(snakemake.input.budgets)
        save_figure(snakemake.output.gains, gain_figure(decomposition, benchmark, note))
        save_figure(snakemake.output.budgets, budget_figure(budgets, benchmark, note))
        save_figure(snakemake.output.informativeness, informativeness_figure(results, harvest, benchmark, note))


if __name__ == "__main__":
    main(snakemake)
