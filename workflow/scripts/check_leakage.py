"""Rule check_leakage: stop the run where a benchmark problem is also in the training pool."""

from g2d.jobs.files import write_json
from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.problems.leakage import assert_no_leakage


def main(snakemake):
    with stage(snakemake):
        pool, problems = read_problems(snakemake.input.pool), read_problems(snakemake.input.benchmark)
        assert_no_leakage(pool, {snakemake.wildcards.benchmark: problems})
        write_json(snakemake.output[0], {"pool": len(pool), "benchmark": len(problems), "leaks": 0})


if __name__ == "__main__":
    main(snakemake)
