"""Sample pairs."""

from g2d.jobs.files import write_jsonl
from g2d.jobs.stage import stage
from g2d.plain import say
from g2d.policies import read_own_policy
from g2d.problems import read_problems
from g2d.problems.prompts import Prompt
from g2d.rollouts.pairs import build_pairs, why_no_pairs
from g2d.rollouts.rollout import read_own_rollouts
from g2d.rollouts.rollout_keys import Pairs


def main(snakemake):
    with stage(snakemake):
        recorded = snakemake.params.settings
        base = read_own_policy(snakemake.input.base)
        rollouts = read_own_rollouts(snakemake.input.rollouts, base)
        pairs = build_pairs(
            rollouts,
            read_problems(snakemake.input.problems),
            Prompt.model_validate(recorded["prompt"]),
            seed=int(snakemake.wildcards.seed),
            min_reward_margin=Pairs.model_validate(recorded.get("pairs", {})).min_reward_margin,
        )
        if not pairs:
            say(why_no_pairs(rollouts))
        write_jsonl(snakemake.output.pairs, pairs)


if __name__ == "__main__":
    main(snakemake)
