"""Rule write_methods: the methods paragraph, from the settings that were used."""

from g2d.experiment.config import load
from g2d.jobs.files import read_json, write_text
from g2d.jobs.stage import stage
from g2d.report.methods import methods
from g2d.tables.tables import read_table


def main(snakemake):
    with stage(snakemake):
        given, params = snakemake.input, snakemake.params
        tables = (read_table(given.calibration), read_table(given.harvest))
        text = methods(load(params.config), read_json(given.provenance), *tables, params.tables)
        write_text(snakemake.output[0], text)


if __name__ == "__main__":
    main(snakemake)
