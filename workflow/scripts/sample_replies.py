"""Draw a policy's replies to the held-out open-ended prompts, and judge them."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.jobs.stage import stage
    from g2d.problems import read_problems
    from g2d.rewards.registry import reward_settings
    from g2d.rollouts.rollout_keys import Sampling
    from g2d.rollouts.sample import sampling
    from g2d.stages.sample_rollouts import generate_rollouts

    with stage(snakemake) as meter:
        given = dict(snakemake.params.settings["open_ended"])
        seed = given.pop("seed")
        decoding = sampling(Sampling.model_validate(given), seed)
        problems = read_problems(snakemake.input.problems)
        generate_rollouts(snakemake, meter, problems, decoding, reward_settings(snakemake.params.settings["reward"]))


if __name__ == "__main__":
    run(main, snakemake)
