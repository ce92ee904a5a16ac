"""Rule make_contamination_table: which benchmarks M0 completes word for word, beside those that nobody has seen."""

from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.contamination import contamination_table
from g2d.tables.frames import write_table


def main(snakemake):
    with stage(snakemake):
        given, params = snakemake.input, snakemake.params
        problems = {name: read_problems(path) for name, path in zip(params.benchmarks, given.problems, strict=True)}
        asked = [(model, name) for model in params.models for name in params.benchmarks]
        continued = {
            at: read_rollouts(path, ["problem_id", "completion_text", "verdict"])
            for at, path in zip(asked, given.rollouts, strict=True)
        }
        table = contamination_table(continued, problems, params.fresh, params.share)
        write_table(snakemake.output.contamination, table)


if __name__ == "__main__":
    main(snakemake)
