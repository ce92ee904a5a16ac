"""Rule write_methods: the methods paragraph, from the settings that were used."""

from g2d.experiment.config import load
from g2d.jobs.files import read_json, write_text
from g2d.jobs.stage import stage
from g2d.report.methods import methods
from g2d.tables.calibration import CALIBRATION_COLUMNS
from g2d.tables.frames import read_table
from g2d.tables.harvest import HARVEST_COLUMNS


def main(snakemake):
    with stage(snakemake):
        given, params = snakemake.input, snakemake.params
        tables = (
            read_table(given.calibration, CALIBRATION_COLUMNS),
            read_table(given.harvest, HARVEST_COLUMNS),
        )
        text = methods(load(params.config), read_json(given.provenance), *tables, params.tables)
        write_text(snakemake.output[0], text)


if __name__ == "__main__":
    main(snakemake)
