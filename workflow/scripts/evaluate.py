"""Pass@1 of one policy on one benchmark, one row per problem (paper, Table 1)."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.jobs.stage import stage
    from g2d.problems import read_problems
    from g2d.rollouts.rollout_keys import Evaluation
    from g2d.rollouts.sample import evaluation_decoding
    from g2d.stages.sample_rollouts import generate_rollouts

    with stage(snakemake) as meter:
        settings = Evaluation.model_validate(snakemake.params.settings["evaluation"])
        problems = read_problems(snakemake.input.benchmark)
        generate_rollouts(snakemake, meter, problems, evaluation_decoding(settings))


if __name__ == "__main__":
    run(main, snakemake)
