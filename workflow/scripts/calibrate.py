"""Rule calibrate: rollouts of M0 on problems of every level."""

from g2d.config import Calibration, Prompt, load
from g2d.policies import read_policy
from g2d.problems import read_problems
from g2d.problems.selection import sample_per_level
from g2d.rollouts.draw import draw_rollouts, sampling
from g2d.rollouts.engine import engine_for
from g2d.rollouts.rollout import write_rollouts
from g2d.stage import stage


def main(snakemake):
    with stage(snakemake) as meter:
        settings = Calibration.model_validate(snakemake.params.settings["calibration"])
        prompt = Prompt.model_validate(snakemake.params.settings["prompt"])
        policy = read_policy(snakemake.input.policy)
        pool = read_problems(snakemake.input.pool)
        problems = sample_per_level(pool, settings.problems_per_level, settings.seed)
        decoding = sampling(settings, settings.seed)
        engine = engine_for(policy, load(snakemake.config).for_model(policy.model).engine)
        rollouts = draw_rollouts(policy, problems, prompt, decoding, workers=snakemake.threads, engine=engine)
        meter.tokens_generated += sum(rollout.token_count for rollout in rollouts)
        write_rollouts(snakemake.output.rollouts, rollouts)


if __name__ == "__main__":
    main(snakemake)
