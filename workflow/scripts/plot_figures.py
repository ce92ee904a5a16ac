"""Plot Figures 2 and 3 of the paper, and further figures."""

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.stage import stage
from g2d.report import charts
from g2d.report.styles import series_styles
from g2d.report.vega import below_each_other, panels, save_figure
from g2d.tables.results import read_by_name

NOTHING = "Nothing was evaluated."


def main(snakemake):
    with stage(snakemake):
        given = snakemake.input
        out = snakemake.output
        benchmark = snakemake.params.benchmark
        note = snakemake.params.note
        styles = series_styles(Grid(load(snakemake.config)))  # the same styles for all tables
        results = read_by_name(given.main)
        results = results[results["benchmark"] == benchmark]
        gains = read_by_name(given.decomposition)
        gains = gains[gains["benchmark"] == benchmark]
        accuracy = panels(charts.accuracy_by_k, charts.without_ablations(results), styles)
        informativeness = panels(charts.informativeness_by_k, read_by_name(given.harvest))
        save_figure(out.accuracy, accuracy, note, NOTHING)
        save_figure(out.informativeness, below_each_other(accuracy, informativeness), note, NOTHING)
        save_figure(out.gains, panels(charts.gains, gains), note, NOTHING)


if __name__ == "__main__":
    main(snakemake)
