"""Choose the levels to train on (Table 4) and draw the training set from them."""

from g2d.analysis.calibration import choose_levels, few_mixed, level_table, with_mixes
from g2d.jobs.stage import stage
from g2d.plain import say
from g2d.problems import read_problems, write_problems
from g2d.problems.problem import draw_training_set
from g2d.problems.problem_keys import TrainingSet
from g2d.rollouts.rollout import read_rollouts
from g2d.rollouts.rollout_keys import Calibration
from g2d.tables.frames import write_table


def main(snakemake):
    with stage(snakemake):
        settings = Calibration.model_validate(snakemake.params.settings["calibration"])
        training_set = TrainingSet.model_validate(snakemake.params.settings["training_set"])
        table = level_table(read_rollouts(snakemake.input.rollouts))
        levels = choose_levels(table, settings)
        mixes = with_mixes(table, levels)
        write_table(snakemake.output.levels, mixes)
        warning = few_mixed(mixes)
        if warning:
            say(warning)
        pool = read_problems(snakemake.input.pool)
        write_problems(snakemake.output.problems, draw_training_set(pool, levels, training_set.n, training_set.seed))


if __name__ == "__main__":
    main(snakemake)
