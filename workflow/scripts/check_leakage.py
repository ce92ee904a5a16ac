"""Stop the run if a benchmark problem is also in the training pool."""

from pathlib import Path

from g2d.jobs.files import write_json
from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.problems.audit import assert_no_leakage
from g2d.problems.problem_keys import OPEN_ENDED, place_of


def main(snakemake):
    with stage(snakemake):
        pool = read_problems(snakemake.input.pool)
        benchmark = read_problems(snakemake.input.benchmark)
        among = "the training pool"
        if Path(snakemake.input.pool).stem == OPEN_ENDED:
            among = place_of(OPEN_ENDED)
        assert_no_leakage(pool, benchmark, place_of(snakemake.wildcards.benchmark), among)
        write_json(snakemake.output[0], {"pool": len(pool), "benchmark": len(benchmark), "leaks": 0})


if __name__ == "__main__":
    main(snakemake)
