"""Stop the run if a benchmark problem is also in the training pool."""

from pathlib import Path

from g2d.jobs.files import write_json
from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.problems.leakage import assert_no_leakage
from g2d.problems.problem_keys import OPEN_ENDED, place_of


def main(snakemake):
    with stage(snakemake):
        given = snakemake.input
        pool, problems = read_problems(given.pool), read_problems(given.benchmark)
        among = place_of(OPEN_ENDED) if Path(given.pool).stem == OPEN_ENDED else "the training pool"
        assert_no_leakage(pool, problems, place_of(snakemake.wildcards.benchmark), among)
        write_json(snakemake.output[0], {"pool": len(pool), "benchmark": len(problems), "leaks": 0})


if __name__ == "__main__":
    main(snakemake)
