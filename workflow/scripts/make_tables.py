"""Write every table that is an output of the rule."""

from pathlib import Path

from g2d.experiment.config import load
from g2d.jobs.stage import stage
from g2d.tables.frames import write_table
from g2d.tables.inputs import Inputs


def main(snakemake):
    with stage(snakemake):
        results = Inputs(Path("results"), load(snakemake.config), whole=True, threads=snakemake.threads)
        for name, file in snakemake.output.items():
            write_table(file, results.build(name))


if __name__ == "__main__":
    main(snakemake)
