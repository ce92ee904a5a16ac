"""Rule check_leakage: stop the run where a benchmark problem is also in the training pool."""

from pathlib import Path

from g2d.jobs.files import write_json
from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.problems.leakage import assert_no_leakage
from g2d.problems.settings import DEVELOPMENT, HELD_OUT


def main(snakemake):
    with stage(snakemake):
        name, given = snakemake.wildcards.benchmark, snakemake.input
        pool, problems = read_problems(given.pool), read_problems(given.benchmark)
        words = {DEVELOPMENT: {"section": "sweep"}}.get(name, {})
        if name == HELD_OUT:
            words, name = {"section": "open_ended", "among": "open_ended.pool"}, "held_out"
        if Path(given.pool).stem == DEVELOPMENT:
            words["among"] = "those of the sweep"
        assert_no_leakage(pool, {name: problems}, **words)
        write_json(snakemake.output[0], {"pool": len(pool), "benchmark": len(problems), "leaks": 0})


if __name__ == "__main__":
    main(snakemake)
