"""Split development problems off the pool."""

from g2d.jobs.stage import stage
from g2d.problems import read_problems, write_problems
from g2d.problems.subsets import hold_out


def main(snakemake):
    with stage(snakemake):
        development, remaining = hold_out(read_problems(snakemake.input.pool), snakemake.params.n)
        write_problems(snakemake.output.development, development)
        write_problems(snakemake.output.pool, remaining)


if __name__ == "__main__":
    main(snakemake)
