"""Rule build_pairs: one preference pair per pairable prompt, and how informative the harvest is (Table 2)."""

from g2d.config import Prompt
from g2d.informativeness import informativeness, write_informativeness
from g2d.pairs import build_pairs, write_pairs
from g2d.problems import read_problems
from g2d.rollouts.rollout import read_rollouts
from g2d.stage import stage


def main(snakemake):
    with stage(snakemake):
        rollouts = read_rollouts(snakemake.input.rollouts)
        problems = read_problems(snakemake.input.problems)
        prompt = Prompt.model_validate(snakemake.params.settings["prompt"])
        write_informativeness(snakemake.output.informativeness, informativeness(rollouts))
        own_seed = snakemake.params.settings["pairs"]["seed"]
        seed = int(snakemake.wildcards.seed) if own_seed is None else own_seed
        write_pairs(snakemake.output.pairs, build_pairs(rollouts, problems, prompt, seed))


if __name__ == "__main__":
    main(snakemake)
