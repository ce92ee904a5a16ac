"""Rule write_methods: the methods paragraph, from the settings that were used."""

from g2d.experiment.config import load
from g2d.experiment.sweep import with_choices
from g2d.jobs.files import read_json, write_text
from g2d.jobs.stage import stage
from g2d.report.methods import methods
from g2d.report.sweep import sweep_paragraph
from g2d.tables.choices import SWEEP_COLUMNS
from g2d.tables.frames import read_table
from g2d.tables.harvest import CALIBRATION_COLUMNS, HARVEST_COLUMNS


def main(snakemake):
    with stage(snakemake):
        given, params = snakemake.input, snakemake.params
        tables = (
            read_table(given.calibration, CALIBRATION_COLUMNS),
            read_table(given.harvest, HARVEST_COLUMNS),
        )
        config, said = load(params.config), ""
        if config.sweep and config.sweep.regimes:
            chosen = [
                {name: read_json(f"results/{model}/sweep/{name}.json")["settings"] for name in config.sweep.regimes}
                for model in config.models
            ]
            first, alike = chosen[0], all(own == chosen[0] for own in chosen)
            said = sweep_paragraph(config, read_table(given.sweep, SWEEP_COLUMNS), alike)
            config = with_choices(config, first)
        text = methods(config, read_json(given.provenance), *tables, params.tables, said)
        write_text(snakemake.output[0], text)


if __name__ == "__main__":
    main(snakemake)
