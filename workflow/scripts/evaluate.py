"""Rule evaluate: pass@1 of one policy on one benchmark, one row per problem (paper, Table 1)."""

from g2d.config import Evaluation, Prompt, load
from g2d.policies import read_policy
from g2d.problems import read_problems
from g2d.rollouts.draw import draw_rollouts, evaluation_decoding
from g2d.rollouts.engine import engine_for
from g2d.rollouts.rollout import write_rollouts
from g2d.stage import stage


def main(snakemake):
    with stage(snakemake) as meter:
        settings = Evaluation.model_validate(snakemake.params.settings["evaluation"])
        prompt = Prompt.model_validate(snakemake.params.settings["prompt"])
        policy = read_policy(snakemake.input.policy)
        problems = read_problems(snakemake.input.benchmark)
        decoding = evaluation_decoding(settings)
        engine = engine_for(policy, load(snakemake.config).for_model(policy.model).engine)
        rollouts = draw_rollouts(policy, problems, prompt, decoding, workers=snakemake.threads, engine=engine)
        meter.tokens_generated += sum(rollout.token_count for rollout in rollouts)
        write_rollouts(snakemake.output.rollouts, rollouts)


if __name__ == "__main__":
    main(snakemake)
