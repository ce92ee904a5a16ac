"""Rule make_sweep_table: every candidate of a sweep, with what it scored on the development problems."""

import pandas as pd

from g2d.jobs.stage import stage
from g2d.tables.frames import read_table, write_table
from g2d.tables.sweep import SWEEP_COLUMNS


def main(snakemake):
    with stage(snakemake):
        parts = [read_table(path, SWEEP_COLUMNS) for path in snakemake.input.candidates]
        write_table(snakemake.output.sweep, pd.concat(parts, ignore_index=True))


if __name__ == "__main__":
    main(snakemake)
