"""Rule harvest_rollouts: rollouts of the frozen policy pi_K on the training set (paper, section 2.1, stage 2)."""

from g2d.config import Harvest, Prompt, load
from g2d.policies import read_policy
from g2d.problems import read_problems
from g2d.rollouts.draw import draw_rollouts, sampling
from g2d.rollouts.engine import engine_for
from g2d.rollouts.rollout import write_rollouts
from g2d.stage import stage


def main(snakemake):
    with stage(snakemake) as meter:
        settings = Harvest.model_validate(snakemake.params.settings["harvest"])
        prompt = Prompt.model_validate(snakemake.params.settings["prompt"])
        policy = read_policy(snakemake.input.policy)
        problems = read_problems(snakemake.input.problems)
        decoding = sampling(settings, int(snakemake.wildcards.seed))
        engine = engine_for(policy, load(snakemake.config).for_model(policy.model).engine)
        rollouts = draw_rollouts(policy, problems, prompt, decoding, workers=snakemake.threads, engine=engine)
        meter.tokens_generated += sum(rollout.token_count for rollout in rollouts)
        write_rollouts(snakemake.output.rollouts, rollouts)


if __name__ == "__main__":
    main(snakemake)
