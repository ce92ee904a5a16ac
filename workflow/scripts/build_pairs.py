"""Rule build_pairs: one preference pair per pairable prompt, and how informative the harvest is (Table 2)."""

from dataclasses import replace

from g2d.analysis.informativeness import informativeness, write_informativeness
from g2d.jobs.stage import stage
from g2d.policies import read_own_policy
from g2d.problems import read_problems
from g2d.problems.prompts import Prompt
from g2d.rollouts.pairs import build_pairs, truncated_sides, write_pairs
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
        settings = Pairs.model_validate(snakemake.params.settings["pairs"])
        seed = int(snakemake.wildcards.seed) if settings.seed is None else settings.seed
        pairs = build_pairs(
            rollouts, problems, prompt, seed, truncated_chosen=settings.truncated_chosen, margin=settings.margin
        )
        chosen, rejected = truncated_sides(pairs, rollouts)
        found = replace(informativeness(rollouts), n_chosen_truncated=chosen, n_rejected_truncated=rejected)
        write_informativeness(snakemake.output.informativeness, found)
        write_pairs(snakemake.output.pairs, pairs)


if __name__ == "__main__":
    main(snakemake)
