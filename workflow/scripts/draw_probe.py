"""Draw the harvest's rollouts of pi_K on the first prompts of the training set."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.experiment.generation import generate_rollouts
    from g2d.jobs.stage import stage
    from g2d.problems import read_problems
    from g2d.rollouts.draw import sampling
    from g2d.rollouts.settings import Harvest

    with stage(snakemake) as meter:
        settings = Harvest.model_validate(snakemake.params.settings["harvest"])
        problems = read_problems(snakemake.input.problems)[: snakemake.params.prompts]
        generate_rollouts(snakemake, meter, problems, sampling(settings, int(snakemake.wildcards.seed)))


if __name__ == "__main__":
    run(main, snakemake)
