"""Rule make_win_rates: how often each policy's replies are preferred to M0's, as they are and at equal length."""

from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.scenarios import prompts_behind
from g2d.jobs.stage import stage
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.frames import write_table
from g2d.tables.win_rates import NEEDED, win_rate_table


def main(snakemake):
    with stage(snakemake):
        config = load(snakemake.params.config)
        policies = grid.policies(config)
        replies = {key: read_rollouts(f"results/{key.folder}/open-ended/rollouts.parquet", NEEDED) for key in policies}
        prompts = {key.regime: prompts_behind(config, key.regime) for key in policies}
        write_table(snakemake.output.win_rates, win_rate_table(replies, prompts))


if __name__ == "__main__":
    main(snakemake)
