"""Pass@1 of one policy on all benchmarks, one row per problem (paper, Table 1)."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.jobs.stage import stage
    from g2d.rollouts.rollout_keys import Evaluation
    from g2d.rollouts.sample import evaluation_decoding
    from g2d.stages.evaluate_policy import evaluate_benchmarks

    with stage(snakemake) as meter:
        settings = Evaluation.model_validate(snakemake.params.settings["evaluation"])
        evaluate_benchmarks(snakemake, meter, evaluation_decoding(settings))


if __name__ == "__main__":
    run(main, snakemake)
