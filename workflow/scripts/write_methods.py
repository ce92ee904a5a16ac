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
        config, sweep, same_choices = load(snakemake.config), None, True
        if config.sweep and config.sweep.regimes:
            chosen = [
                {name: read_json(f"results/{model}/sweep/{name}.json")["settings"] for name in config.sweep.regimes}
                for model in config.models
            ]
            sweep, same_choices = read_by_name(given.sweep), all(choice == chosen[0] for choice in chosen)
            config = with_choices(config, chosen[0])
        record = read_json(given.provenance)
        calibration, harvest = read_by_name(given.calibration), read_by_name(given.harvest)
        plan = plan_words(read_plan())
        steps = steps_of(taken(config.looks)) if config.looks else "holm"
        text = methods(config, record, calibration, harvest, params.tables, sweep, same_choices, plan, steps)
        write_text(snakemake.output[0], text)


if __name__ == "__main__":
    main(snakemake)
