"""Rule make_factorial: what makes prompts pairable, their level or the temperature?"""

import pandas as pd

from g2d.analysis.factorial import factorial_cells, factorial_effects
from g2d.jobs.stage import stage
from g2d.rollouts.rollout import TEXTLESS, read_rollouts
from g2d.tables.frames import write_table


def main(snakemake):
    with stage(snakemake):
        cells, effects = [], []
        for model, files in snakemake.params.rollouts.items():
            rollouts = {float(temperature): read_rollouts(file, TEXTLESS) for temperature, file in files.items()}
            cells.append(factorial_cells(model, rollouts))
            effects.append(factorial_effects(model, rollouts))
        write_table(snakemake.output.factorial, pd.concat(cells))
        write_table(snakemake.output.factorial_effects, pd.concat(effects))


if __name__ == "__main__":
    main(snakemake)
