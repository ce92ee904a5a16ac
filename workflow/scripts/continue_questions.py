"""Let M0 continue the beginning of every question, without its chat template."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.analysis.contamination import partial_problems
    from g2d.experiment.generation import generate_rollouts
    from g2d.experiment.sections import Contamination
    from g2d.jobs.stage import stage
    from g2d.problems import read_problems
    from g2d.rollouts.draw import greedy

    with stage(snakemake) as meter:
        settings = Contamination.model_validate(snakemake.params.settings["contamination"])
        problems = partial_problems(read_problems(snakemake.input.problems), settings.share)
        generate_rollouts(snakemake, meter, problems, greedy(settings.max_completion_length, settings.batch_size))


if __name__ == "__main__":
    run(main, snakemake)
