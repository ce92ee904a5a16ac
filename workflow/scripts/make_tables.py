"""Write every table that is an output of the rule, from the files that are its inputs."""

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.stage import stage
from g2d.tables.frames import write_table
from g2d.tables.inputs import Inputs


def main(snakemake):
    with stage(snakemake):
        inputs = Inputs(Grid(load(snakemake.config)), given=snakemake.input, threads=snakemake.threads)
        for name, file in snakemake.output.items():
            write_table(file, inputs.build(name))


if __name__ == "__main__":
    main(snakemake)
