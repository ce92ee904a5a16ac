"""Rollouts of M0 on problems of every level."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.jobs.stage import stage
    from g2d.problems import read_problems
    from g2d.problems.problem import sample_per_level
    from g2d.rollouts.rollout_keys import Calibration
    from g2d.rollouts.sample import sampling
    from g2d.stages.sample_rollouts import generate_rollouts

    with stage(snakemake) as meter:
        settings = Calibration.model_validate(snakemake.params.settings["calibration"])
        pool = read_problems(snakemake.input.pool)
        problems = sample_per_level(pool, settings.problems_per_level, settings.seed, settings.only)
        generate_rollouts(snakemake, meter, problems, sampling(settings, settings.seed), is_first=True)


if __name__ == "__main__":
    run(main, snakemake)
