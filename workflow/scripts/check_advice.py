"""Compare the advice with the results of the grid."""

import pandas as pd

from g2d.advice.check import accuracy_check, harvest_check, hours_check
from g2d.advice.probe import STEP_COLUMNS
from g2d.analysis.informativeness import read_informativeness
from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.race import decided
from g2d.forecast.probe_hours import HOURS_COLUMNS
from g2d.jobs.cost import read_cost
from g2d.jobs.stage import stage
from g2d.rollouts.rollout import TEXTLESS, read_rollouts
from g2d.tables.frames import read_table, write_table


def main(snakemake):
    with stage(snakemake):
        given, config = snakemake.input, decided(load(snakemake.config))
        steps, benchmark = read_table(given.steps, STEP_COLUMNS), next(iter(config.benchmarks))
        summaries = {
            key: read_informativeness(f"results/{key.folder}/informativeness.json") for key in grid.harvests(config)
        }
        answers = {
            policy: read_rollouts(f"results/{policy.folder}/eval/{benchmark}.parquet", TEXTLESS)
            for policy in grid.policies(config)
            if policy.regime == "dpo"
        }
        before = [record for path in given.probes for record in read_cost(path).records]
        costs = [record for path in given.bills for record in read_cost(path).records]
        parts = [
            harvest_check(steps, summaries, config.seeds[0]),
            accuracy_check(steps, answers, benchmark),
            hours_check(read_table(given.hours, HOURS_COLUMNS), before, costs),
        ]
        write_table(snakemake.output.check, pd.concat(parts, ignore_index=True))


if __name__ == "__main__":
    main(snakemake)
