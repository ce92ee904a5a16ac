"""Rule make_training_tables: what goes on in every online training, and which of them collapsed."""

import pandas as pd

from g2d.analysis.dynamics import steps_of
from g2d.experiment.config import load
from g2d.experiment.sections import Collapse
from g2d.experiment.trajectories import trajectories
from g2d.jobs.files import parse_json, read_lines
from g2d.jobs.stage import stage
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
    consumed = pd.concat([pd.read_parquet(f"results/{key.folder}/rollouts.parquet") for key in stops])
    if "generated_at" not in consumed:  # every step was trained on rollouts of its own
        consumed["generated_at"] = consumed["step"]
    entry = config.regimes.get(last.regime)
    return steps_of(log, consumed[["step", "generated_at"]], getattr(entry, "beta", None))


if __name__ == "__main__":
    main(snakemake)
