"""Rollouts of the frozen policy pi_K on the training set."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Imported in the fork (share_imports).
    from g2d.jobs.stage import stage
    from g2d.problems import read_problems
    from g2d.rewards.registry import reward_settings
    from g2d.rollouts.rollout_keys import HarvestSettings
    from g2d.rollouts.sample import sampling
    from g2d.stages.sample_rollouts import generate_rollouts

    with stage(snakemake) as meter:
        settings = HarvestSettings.model_validate(snakemake.params.settings["harvest"])
        problems = read_problems(snakemake.input.problems)
        reward = reward_settings(snakemake.params.settings.get("reward"))
        decoding = sampling(settings, int(snakemake.wildcards.seed))
        generate_rollouts(snakemake, meter, problems, decoding, reward, token_ids=True)


if __name__ == "__main__":
    run(main, snakemake)
