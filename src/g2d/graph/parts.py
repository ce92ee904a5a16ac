"""Sets of files that tables, cards, the page and `g2d.open` read together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, product
from typing import Any

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.graph.catalogue import tables_of

# Parts that a table's input is read from, if not only the part of the same name.
READ_FOR = {
    **{name: (name, "records") for name in ("answers", "sampled", "replies")},
    **dict.fromkeys(("device_hours", "calibrated"), ("records", "costs")),
    "spent": ("records", "costs", "logs_of_trainings"),
    "charged": ("records", "costs", "answer_costs", "sample_costs", "reply_costs"),
    "counts": ("harvested",),
    "points": ("summaries", "answers", "records"),
    "judged": ("harvested", "answers", "records"),
    "logs": ("logs", "ages"),
    "tested": ("answers", "records"),
    "main": ("answers", "records", "costs"),
}


def files_of(config: Config, part: str) -> dict[Any, str]:
    keys, pattern = PARTS[part]
    members = keys(config)
    if not pattern:
        return dict(members)
    named = ((key, key if isinstance(key, tuple) else (key,)) for key in members)
    return {key: f"results/{pattern.format(*values)}" for key, values in named}


def table_inputs(config: Config) -> dict[str, list[str]]:
    reads = chain.from_iterable(table.reads.split() for table in tables_of(config).values())
    parts = dict.fromkeys(chain.from_iterable(READ_FOR.get(name, (name,)) for name in reads))
    return {part: list(files_of(config, part).values()) for part in parts if part in PARTS}


def _evaluated(config: Config) -> Iterable[tuple[PolicyKey, str]]:
    return product(grid.policies(config), config.benchmarks)


def _trained(config: Config) -> list[PolicyKey]:
    return [key for key in grid.policies(config) if key.role != "base"]


def _shown(config: Config) -> list[HarvestKey]:
    return [*grid.harvests(config), *grid.harvests_of_controls(config)]


def _side_by_side(config: Config) -> list[tuple[PolicyKey, str]]:
    shown = grid.side_by_side(config).items()
    return [(key, benchmark) for (_, benchmark), keys in shown for key in keys]


def _replied(config: Config) -> list[PolicyKey]:
    return grid.policies(config) if config.open_ended else []


def _temperatures(config: Config) -> Mapping[Any, str]:
    files = {model: grid.factorial_files(config, model) for model in config.models}
    return {
        (model, temperature): file
        for model, by_temperature in files.items()
        for temperature, file in by_temperature.items()
    }


# Keys and path pattern of each part; without a pattern, the keys are a mapping to files.
PARTS: Mapping[str, tuple[Callable[[Config], Iterable[Any] | Mapping[Any, str]], str]] = {
    "levels": (lambda config: config.models, "{}/calibration/levels.csv"),
    "temperatures": (_temperatures, ""),
    "summaries": (grid.harvests, "{.folder}/informativeness.json"),
    "harvested": (grid.harvests, "{.folder}/rollouts.parquet"),
    "harvest_costs": (grid.harvests, "{.folder}/cost.json"),
    "records": (grid.policies, "{.folder}/policy.json"),
    "trained": (_trained, "{.folder}/policy.json"),
    "costs": (_trained, "{.folder}/cost.json"),
    "logs_of_trainings": (grid.trainings, "{.folder}/metrics.jsonl"),
    "shown_pairs": (_shown, "{.folder}/pairs.jsonl"),
    "shown_rollouts": (_shown, "{.folder}/rollouts.parquet"),
    "shown_answers": (_side_by_side, "{.folder}/eval/{}.parquet"),
    "answers": (_evaluated, "{.folder}/eval/{}.parquet"),
    "answer_costs": (_evaluated, "{.folder}/eval/{}.cost.json"),
    "sampled": (grid.sample_files, ""),
    "sample_costs": (grid.drawn_beside, "{.folder}/samples/{}.cost.json"),
    "replies": (_replied, "{.folder}/open-ended/rollouts.parquet"),
    "reply_costs": (_replied, "{.folder}/open-ended/cost.json"),
    "probes": (grid.auto_warmups, "{.folder}/probes.csv"),
    "logs": (grid.trajectories, "{.folder}/metrics.jsonl"),
    "ages": (lambda config: chain.from_iterable(grid.trajectories(config).values()), "{.folder}/rollouts.parquet"),
}
