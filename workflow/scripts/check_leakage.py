"""Rule check_leakage: stop the run where a benchmark problem is also in the training pool."""

from pathlib import Path

from g2d.files import write_json
from g2d.problems import read_problems
from g2d.problems.leakage import assert_no_leakage
from g2d.stage import stage


def main(snakemake):
    with stage(snakemake):
        pool = read_problems(snakemake.input.pool)
        benchmarks = {Path(path).stem: read_problems(path) for path in snakemake.input.benchmarks}
        assert_no_leakage(pool, benchmarks)
        compared = {name: len(problems) for name, problems in benchmarks.items()}
        write_json(snakemake.output[0], {"pool": len(pool), "benchmarks": compared, "leaks": 0})


if __name__ == "__main__":
    main(snakemake)
