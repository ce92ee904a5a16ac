"""Write the methods paragraph from the settings in use."""

from g2d.experiment.config import load
from g2d.experiment.race import taken
from g2d.experiment.sweep import with_choices
from g2d.jobs.files import read_json, write_text
from g2d.jobs.stage import stage
from g2d.report.methods import methods
from g2d.tables.dated_plan import plan_words, read_plan
from g2d.tables.looks import steps_of
from g2d.tables.results import read_by_name


def main(snakemake):
    with stage(snakemake):
        given, params = snakemake.input, snakemake.params
        config, sweep = load(snakemake.config), None
        if config.sweep and config.sweep.regimes:
            first = next(iter(config.models))  # methods has a sentence if other models have other choices
            chosen = {
                name: read_json(f"results/{first}/sweep/{name}.json")["settings"] for name in config.sweep.regimes
            }
            config, sweep = with_choices(config, chosen), read_by_name(given.sweep)
        record = read_json(given.provenance)
        calibration, harvest = read_by_name(given.calibration), read_by_name(given.harvest)
        plan = plan_words(read_plan())
        steps = steps_of(taken(config.looks)) if config.looks else "holm"
        text = methods(config, record, calibration, harvest, params.tables, sweep, plan, steps)
        write_text(snakemake.output[0], text)


if __name__ == "__main__":
    main(snakemake)
