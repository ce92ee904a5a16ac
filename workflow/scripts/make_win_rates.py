"""Rule make_win_rates: whose replies are preferred to those of M0, and Table 3 of arXiv 2506.21495 beside them."""

from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.scenarios import prompts_behind
from g2d.jobs.stage import stage
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.accuracy import MAIN_COLUMNS
from g2d.tables.frames import read_table, write_table
from g2d.tables.scenarios import scenario_table
from g2d.tables.win_rates import NEEDED, win_rate_table


def main(snakemake):
    with stage(snakemake):
        config, out = load(snakemake.params.config), snakemake.output
        policies = grid.policies(config)
        replies = {key: read_rollouts(f"results/{key.folder}/open-ended/rollouts.parquet", NEEDED) for key in policies}
        prompts = {key.regime: prompts_behind(config, key.regime) for key in policies}
        win_rates = win_rate_table(replies, prompts)
        write_table(out.win_rates, win_rates)
        online = {key.label: prompts[key.regime] for key in policies if key.trained_online or key.role == "base"}
        write_table(out.scenarios, scenario_table(read_table(snakemake.input.main, MAIN_COLUMNS), win_rates, online))


if __name__ == "__main__":
    main(snakemake)
