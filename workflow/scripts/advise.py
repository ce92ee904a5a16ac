"""Recommend levels and K, and estimate the hours of the rest of the grid."""

from pathlib import Path

import pandas as pd

from g2d.advice.probe import level_advice, step_advice
from g2d.advice.words import advice_text
from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.analysis.informativeness import success_counts
from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.forecast.power import planned_words
from g2d.forecast.probe_hours import hours_advice, rates
from g2d.jobs.cost import read_cost
from g2d.jobs.files import write_text
from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.rollouts.rollout import TEXTLESS, read_rollouts
from g2d.tables.frames import read_table, write_table


def main(snakemake):
    with stage(snakemake):
        config, out = load(snakemake.config), snakemake.output
        n_problems = {Path(path).stem: len(read_problems(path)) for path in snakemake.input.benchmarks}
        levels, steps, hours = [], [], []
        for model in config.models:
            resolved, keys = config.for_model(model), [key for key in grid.probes(config) if key.model == model]
            table = read_table(f"results/{model}/calibration/levels.csv", LEVEL_COLUMNS)
            levels.append(level_advice(model, table, resolved.calibration.window))
            rollouts = {key: read_rollouts(f"results/{key.probe_folder}/rollouts.parquet", TEXTLESS) for key in keys}
            counts = {key: success_counts(frame) for key, frame in rollouts.items()}
            steps.append(step_advice(counts, resolved.training_set.n))
            costs = {key: read_cost(f"results/{key.probe_folder}/cost.json") for key in keys}
            measured = rates(config, model, costs, len(counts[keys[0]]))
            best = steps[-1][steps[-1]["advised"]].fillna({"group_size": 0})
            advised = None if best.empty else (int(best["group_size"].iloc[0]), int(best["K"].iloc[0]))
            hours.append(hours_advice(config, model, measured, advised, n_problems))
        levels, steps, hours = (pd.concat(parts, ignore_index=True) for parts in (levels, steps, hours))
        write_table(out.steps, steps)
        write_table(out.hours, hours)
        of_benchmarks = {name: n_problems[name] for name in config.benchmarks}
        write_text(
            out.text, advice_text(config, levels, steps, hours, planned_words(config, of_benchmarks), measured.device)
        )


if __name__ == "__main__":
    main(snakemake)
