"""Draw Figures 2 and 3 of the paper, and further figures."""

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.stage import stage
from g2d.report import charts
from g2d.report.figures import below_each_other, panels, save_figure
from g2d.report.styles import series_styles
from g2d.tables.results import read_by_name

NOTHING = "Nothing was evaluated."


def main(snakemake):
    with stage(snakemake):
        given, out, params = snakemake.input, snakemake.output, snakemake.params
        styles = series_styles(Grid(load(snakemake.config)))  # the same styles for all tables
        tables = map(read_by_name, (given.main, given.decomposition))
        results, gains = (table[table["benchmark"] == params.benchmark] for table in tables)
        accuracy = panels(charts.accuracy_by_k, charts.without_ablations(results), styles)
        informativeness = panels(charts.informativeness_by_k, read_by_name(given.harvest))
        save_figure(out.accuracy, accuracy, params.note, NOTHING)
        save_figure(out.informativeness, below_each_other(accuracy, informativeness), params.note, NOTHING)
        save_figure(out.gains, panels(charts.gains, gains), params.note, NOTHING)


if __name__ == "__main__":
    main(snakemake)
