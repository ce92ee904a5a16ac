"""Rule build_several_pairs: several different preference pairs per pairable prompt, as an ablation."""

from g2d.jobs.stage import stage
from g2d.policies import read_own_policy
from g2d.problems import read_problems
from g2d.problems.prompts import Prompt
from g2d.rollouts.pairs import build_pairs, write_pairs
from g2d.rollouts.rollout import read_rollouts
from g2d.rollouts.settings import Pairs
from g2d.rollouts.tokens import with_token_ids


def main(snakemake):
    with stage(snakemake):
        rollouts = read_rollouts(snakemake.input.rollouts)
        base = read_own_policy(snakemake.input.base)
        if not base.is_recorded:
            rollouts = with_token_ids(rollouts, base)
        problems = read_problems(snakemake.input.problems)
        prompt = Prompt.model_validate(snakemake.params.settings["prompt"])
        seed, n = int(snakemake.wildcards.seed), int(snakemake.wildcards.n)
        settings = Pairs.model_validate(snakemake.params.settings.get("pairs", {}))
        chosen, margin = settings.truncated_chosen, settings.margin
        write_pairs(snakemake.output.pairs, build_pairs(rollouts, problems, prompt, seed, n, chosen, margin))


if __name__ == "__main__":
    main(snakemake)
