"""Where the parts of a grid lie that tables are made of: what `g2d.open` reads and what a table's rule has as input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from g2d.experiment import grid
from g2d.experiment.arms import asked_for
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey
from g2d.problems.settings import DEVELOPMENT
from g2d.tables.catalogue import tables_of_rule

Pairs = Iterable[tuple[Any, str]]

# What the inputs of a table are read from, where that is more than the files that have the same name.
READ_FOR = {
    **{name: (name, "records") for name in ("answers", "sampled", "drifted", "replies")},
    **dict.fromkeys(("device_hours", "calibrated", "measured"), ("records", "costs")),
    **dict.fromkeys(("spent", "paid"), ("records", "costs", "logs_of_regimes")),
    "billed": ("records", "costs", "answer_costs", "sample_costs", "drift_costs", "reply_costs", "sweep_costs"),
    "counts": ("harvested",),
    "points": ("summaries", "answers", "records"),
    "judged": ("harvested", "answers", "records"),
    "logs": ("logs", "ages"),
    "main": ("answers", "records", "costs"),
}


def files_of(config: Config, part: str) -> dict[Any, str]:
    """The files of a part of the grid by what they are of; paths begin with `results/`."""
    return dict(_PARTS[part](config))


def table_inputs(config: Config, rule: str) -> dict[str, list[str]]:
    """What the tables of a rule are made of: files by part."""
    reads = chain.from_iterable(table.reads.split() for table in tables_of_rule(config, rule))
    parts = dict.fromkeys(chain.from_iterable(READ_FOR.get(name, (name,)) for name in reads))
    return {part: list(files_of(config, part).values()) for part in parts if part in _PARTS}


def _in_folders(keys: Iterable[Any], file: str) -> Pairs:
    return ((key, f"results/{key.folder}/{file}") for key in keys)


def _evaluated(config: Config, ending: str) -> Pairs:
    return (
        ((key, benchmark), f"results/{key.folder}/eval/{benchmark}.{ending}")
        for key in grid.policies(config)
        for benchmark in config.benchmarks
    )


def _trained(config: Config) -> list[PolicyKey]:
    return [key for key in grid.policies(config) if key.role != "base"]


def _replied(config: Config) -> list[PolicyKey]:
    return grid.policies(config) if config.open_ended else []


def _seen_in_training(config: Config) -> Pairs:
    own = grid.controls(config)
    return ((key, grid.learnt_from(config, key)) for key in _trained(config) if key.regime in own)


_PARTS: Mapping[str, Callable[[Config], Mapping[Any, str] | Pairs]] = {
    "levels": lambda config: ((model, f"results/{model}/calibration/levels.csv") for model in config.models),
    "summaries": lambda config: _in_folders(grid.harvests(config), "informativeness.json"),
    "harvested": lambda config: _in_folders(grid.harvests(config), "rollouts.parquet"),
    "answers": lambda config: _evaluated(config, "parquet"),
    "answer_costs": lambda config: _evaluated(config, "cost.json"),
    "sample_costs": lambda config: (
        (at, f"results/{place}.cost.json") for at, place in grid.drawn_beside(config).items()
    ),
    "drifted": lambda config: ((at, f"results/{place}.parquet") for at, place in grid.drifts(config).items()),
    "drift_costs": lambda config: ((at, f"results/{place}.cost.json") for at, place in grid.drifts(config).items()),
    "reply_costs": lambda config: _in_folders(_replied(config), "open-ended/cost.json"),
    "records": lambda config: _in_folders(grid.policies(config), "policy.json"),
    "costs": lambda config: _in_folders(_trained(config), "cost.json"),
    "logs_of_regimes": lambda config: _in_folders(
        [key for key in _trained(config) if asked_for(config, "entry") and not key.selected], "metrics.jsonl"
    ),
    "probes": lambda config: _in_folders(grid.auto_warmups(config), "probes.csv"),
    "sweep_costs": lambda config: (
        ((key, file), f"results/{key.folder}/{file}")
        for _, key in grid.candidate_policies(config)
        for file in ("cost.json", f"eval/{DEVELOPMENT}.cost.json")
    ),
    "seen": _seen_in_training,
    "selections": lambda config: _in_folders(grid.checkpoints(config), "selection.csv"),
    "temperatures": lambda config: (
        ((model, temperature), file)
        for model in config.models
        for temperature, file in grid.factorial_files(config, model).items()
    ),
    "sampled": grid.sample_files,
    "candidates": lambda config: (
        ((model, swept), f"results/{model}/sweep/{swept}.csv")
        for model in config.models
        for swept in (config.sweep.regimes if config.sweep else ())
    ),
    "continued": lambda config: (
        ((model, name), f"results/{model}/contamination/{name}/rollouts.parquet")
        for model in config.models
        for name in config.continued_benchmarks
    ),
    "questions": lambda config: ((name, f"results/problems/{name}.jsonl") for name in config.continued_benchmarks),
    "logs": lambda config: _in_folders(grid.trajectories(config), "metrics.jsonl"),
    "ages": lambda config: _in_folders(chain.from_iterable(grid.trajectories(config).values()), "rollouts.parquet"),
    "replies": lambda config: _in_folders(_replied(config), "open-ended/rollouts.parquet"),
    "looks": lambda config: ((file, file) for file in (config.reached.files if config.reached else ())),
}
