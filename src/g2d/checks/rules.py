"""Rules between keys of a configuration; `g2d.checks.model_rules` has rules for each model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from g2d.checks.model_rules import first_mistake
from g2d.config.sections import Config
from g2d.grid.policy import POLICY_NAMES
from g2d.problems import synthetic
from g2d.problems.problem_keys import OPEN_ENDED_SETS, SyntheticProblems, place_of
from g2d.regimes.run.prompt_choice import PromptMix
from g2d.regimes.run.trainers import AUTO
from g2d.rewards.registry import reward_of
from g2d.settings import Section, repeated

# Names in a results folder, and in a model's folder, that are not models and regimes.
RESERVED_FOLDERS = {"problems", "tables", "figures", "logs", "benchmarks", "attempts", "digests", "report"}
RESERVED_FILES = {
    *("config.yaml", "plan.json", "jobs.json", "methods.md", "provenance.json", "report.html", "report.zip")
}
# Other folders beside runs, and names of policies and of starts of online entries.
RESERVED_RUNS = {"harvest", "calibration", AUTO, "warmup", *POLICY_NAMES}


def mistakes(config: Config) -> list[str]:
    """Return the mistakes of a configuration with valid sections, one line each; of each model, only the first."""
    lines = [f"seeds repeat: {config.seeds}"] if repeated(config.seeds) else []
    for check in (_of_names, _of_open_ended_prompts, _of_references, _of_draws):
        lines += check(config)
    for model in config.models:
        lines += first_mistake(config, model)
    if not lines:
        lines += _of_copies(config)
        lines += _of_selection(config)
    return list(dict.fromkeys(lines))  # several models can make the same mistake


def _of_names(config: Config) -> Iterator[str]:
    rules: list[tuple[str, Collection[str], str]] = [
        ("models", RESERVED_FOLDERS, "a folder of the results"),
        ("models", RESERVED_FILES, "a file of the results"),
        ("benchmarks", ["pool"], "the training pool"),
        ("benchmarks", OPEN_ENDED_SETS if config.open_ended else [], "the prompts of open_ended"),
        ("ablations", RESERVED_RUNS, "the grid"),
        ("regimes", RESERVED_RUNS, "the grid"),
        ("regimes", [name.lower() for name in config.ablations], "an ablation"),
    ]
    for section, names, by in rules:
        for name in getattr(config, section):
            if name.lower() in names:
                yield f"{section}.{name}: the name is taken by {by}: choose another"
    for section in ("models", "benchmarks", "ablations", "regimes", "rewards"):
        seen: dict[str, str] = {}
        for name in getattr(config, section):
            first = seen.setdefault(name.lower(), name)
            if first != name:
                yield f"{section}.{name}: differs from {first} in upper and lower case only: choose another"


def _of_copies(config: Config) -> Iterator[str]:
    models = {name: (_resolved(source), config.for_model(name)) for name, source in config.models.items()}
    benchmarks = {name: _resolved(source) for name, source in config.benchmarks.items()}
    yield from _equal("models", models)
    yield from _equal("benchmarks", benchmarks)


def _equal(section: str, named: Mapping[str, object]) -> Iterator[str]:
    earlier: list[str] = []
    for name, values in named.items():
        for first in earlier:
            if named[first] == values:
                yield f"{section}.{name}: is {first} under another name: drop one of them, or give it other values"
                break
        earlier.append(name)


def _resolved(source: Section) -> dict[str, Any]:
    values = source.params(without={"settings", "select_by"})
    if "path" in values:
        values["path"] = os.path.realpath(values["path"])
    return values


def _of_references(config: Config) -> Iterator[str]:
    named = {f"{where}.reward": getattr(further, "reward", None) for where, further in config.further.items()}
    named |= {f"open_ended.{key}": getattr(config.open_ended, key, None) for key in ("reward", "judge")}
    for where, reward in named.items():
        if reward is not None and reward not in config.rewards:
            yield f"{where}: {reward} is no entry of rewards ({', '.join(config.rewards) or 'none'}): add it there"


def _of_draws(config: Config) -> Iterator[str]:
    """Yield generated problems that do not exist. The first stage that reads a file checks it."""
    for name, source in config.problem_sources.items():
        if isinstance(source, SyntheticProblems):
            try:
                synthetic.require_capacity(source.family, source.split, source.n, tuple(source.drawn_levels))
            except ValueError as error:
                yield f"{place_of(name)}.n: {error}"
    if not isinstance(config.pool, SyntheticProblems):
        return
    available = config.pool.drawn_levels
    listed = f"choose from {', '.join(map(str, available))}"
    pinned = [("calibration", config.calibration.levels)]
    for model, entry in config.models.items():
        changed = entry.settings.get("calibration")
        if isinstance(changed, Mapping):
            pinned.append((f"models.{model}.settings.calibration", changed.get("levels", "auto")))
    for where, levels in pinned:
        if not isinstance(levels, list):
            continue
        for level in levels:
            if level not in available:
                yield f"{where}.levels: the pool has no level {level}: {listed}"


def _of_open_ended_prompts(config: Config) -> Iterator[str]:
    for where, further in config.further.items():
        if not isinstance(further, PromptMix) or not further.asks_open_ended:
            continue
        if config.open_ended is None:
            yield f"{where}.prompts: there are no open-ended prompts: add the section open_ended"
        elif getattr(further, "sync_every", None) == "pass":
            yield f"{where}.sync_every: pass counts only verifiable prompts: write a number of updates"
    section = config.open_ended
    if section is None:
        return
    for name, source in section.sources.items():
        if isinstance(source, SyntheticProblems):
            yield f"{place_of(name)}.family: {source.family} has right answers: name a file or data set of prompts"
    for key in ("reward", "judge"):
        judge = config.rewards.get(getattr(section, key))
        if judge is not None and reward_of(judge).needs_reference:
            yield (
                f"open_ended.{key}: {getattr(section, key)} needs a reference answer, but replies have none: choose a "
                "reward model"
            )


def _of_selection(config: Config) -> Iterator[str]:
    selecting = [name for name, source in config.benchmarks.items() if source.select_by]
    for name in selecting[1:]:
        yield f"benchmarks.{name}.select_by: {selecting[0]} already selects checkpoints: mark only one"
    if len(selecting) == len(config.benchmarks):
        yield f"benchmarks.{selecting[0]}.select_by: no other benchmark is left to compare policies on: add one"
    for name, source in config.problem_sources.items():
        if name not in config.benchmarks and source.select_by:
            yield f"{place_of(name)}.select_by: only a benchmark selects checkpoints: drop the key"
