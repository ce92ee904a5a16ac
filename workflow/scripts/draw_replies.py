"""Rule draw_replies: replies of one policy to the held-out open-ended prompts, and what the judge makes of each."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.generation import generate_rollouts
    from g2d.jobs.stage import stage
    from g2d.problems import read_problems
    from g2d.rewards.catalogue import reward_settings
    from g2d.rollouts.draw import sampling
    from g2d.rollouts.settings import Sampling

    with stage(snakemake) as meter:
        given = dict(snakemake.params.settings["open_ended"])
        seed = given.pop("seed")
        decoding = sampling(Sampling.model_validate(given), seed)
        problems = read_problems(snakemake.input.problems)
        generate_rollouts(snakemake, meter, problems, decoding, reward_settings(snakemake.params.settings["reward"]))


if __name__ == "__main__":
    run(main, snakemake)
