"""Choose the settings of a sweep that answer most development problems."""

from g2d.experiment.config import load
from g2d.experiment.grid import candidate_policies
from g2d.jobs.files import write_json
from g2d.jobs.stage import stage
from g2d.rollouts.rollout import TEXTLESS, read_rollouts
from g2d.tables.choices import best, candidate_table
from g2d.tables.frames import write_table


def main(snakemake):
    with stage(snakemake):
        model, swept = snakemake.wildcards.model, snakemake.wildcards.swept
        tried = [
            pair
            for pair in candidate_policies(load(snakemake.config))
            if (pair[1].model, pair[0].swept) == (model, swept)
        ]
        answers = [read_rollouts(path, TEXTLESS) for path in snakemake.input.evaluations]
        table = candidate_table(tried, answers)
        write_table(snakemake.output.candidates, table)
        chosen = dict(tried[best(table)][0].values)
        write_json(snakemake.output.choice, {"section": snakemake.params.section, "settings": chosen})


if __name__ == "__main__":
    main(snakemake)
