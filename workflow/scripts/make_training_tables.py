"""Rule make_training_tables: what goes on in every online training, and which of them collapsed."""

import pandas as pd

from g2d.analysis.dynamics import steps_of
from g2d.experiment.config import load
from g2d.experiment.sections import Collapse
from g2d.experiment.trajectories import trajectories
from g2d.jobs.files import parse_json, read_lines
from g2d.jobs.stage import stage
from g2d.regimes.training_rollouts import read_ages
from g2d.tables.dynamics import collapse_table, training_table
from g2d.tables.frames import write_table


def main(snakemake):
    with stage(snakemake):
        config, out = load(snakemake.params.config), snakemake.output
        logs = {last: read_steps(config, last, stops) for last, stops in trajectories(config).items()}
        write_table(out.training, training_table(logs))
        write_table(out.collapses, collapse_table(logs, (config.collapse or Collapse()).share))


def read_steps(config, last, stops):
    log = [parse_json(line) for _, line in read_lines(f"results/{last.folder}/metrics.jsonl")]
    ages = pd.concat([read_ages(f"results/{key.folder}/rollouts.parquet") for key in stops])
    return steps_of(log, ages, getattr(config.regimes.get(last.regime), "beta", None))


if __name__ == "__main__":
    main(snakemake)
