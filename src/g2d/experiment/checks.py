"""Rules between keys of a configuration; `g2d.experiment.model_checks` has rules for each model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from g2d.experiment.model_checks import first_mistake
from g2d.experiment.sections import Config
from g2d.experiment.sweep import COUNTS, SECTIONS, candidates, held_out, swept_section, with_candidates, with_choices
from g2d.problems import synthetic
from g2d.problems.settings import (
    DEVELOPMENT,
    OPEN_ENDED_SETS,
    SyntheticProblems,
    place_of,
)
from g2d.regimes.regime import SELECTED
from g2d.regimes.run.prompts import PromptMix
from g2d.regimes.run.training import AUTO
from g2d.rewards.catalogue import reward_of
from g2d.settings import Section, repeated

# Names in a results folder, and in a model's folder, that are not models and regimes.
RESERVED_FOLDERS = {"problems", "tables", "figures", "logs", "benchmarks", "attempts", "digests", "report"}
RESERVED_FILES = {*("config.yaml", "plan.json", "methods.md", "provenance.json", "report.html", "report.zip")}
RESERVED_REGIMES = {"base", "grpo", "dpo", "harvest", "calibration", AUTO}


def mistakes(config: Config) -> list[str]:
    """Return the mistakes of a configuration with valid sections, one line each; of each model, only the first."""
    lines = [f"seeds repeat: {config.seeds}"] if repeated(config.seeds) else []
    for check in (_of_names, _of_open_ended_prompts, _of_references, _of_draws):
        lines += check(config)
    for model in config.models:
        lines += first_mistake(config, model)
    lines += [] if lines else [*_of_copies(config), *_of_selection(config), *_of_the_sweep(config)]
    return list(dict.fromkeys(lines))  # several models can make the same mistake


def _of_names(config: Config) -> Iterator[str]:
    has_selection = any(getattr(further, "select", False) for further in config.further.values())
    rules: list[tuple[str, Collection[str], str]] = [
        ("models", RESERVED_FOLDERS, "a folder of the results"),
        ("models", RESERVED_FILES, "a file of the results"),
        ("benchmarks", ["pool"], "the training pool"),
        ("benchmarks", [DEVELOPMENT, "pool.training"] if config.sweep else [], "the problems of the sweep"),
        ("benchmarks", OPEN_ENDED_SETS if config.open_ended else [], "the prompts of open_ended"),
        ("ablations", RESERVED_REGIMES, "a stage"),
        ("regimes", RESERVED_REGIMES, "a stage"),
        ("regimes", [name.lower() for name in config.ablations], "an ablation"),
        ("regimes", [SELECTED] if has_selection else [], "the checkpoints that `select` chooses"),
    ]
    for section, names, by in rules:
        for name in getattr(config, section):
            if name.lower() in names:
                yield f"{section}.{name}: the name is taken by {by}: choose another"
    for section in ("models", "benchmarks", "ablations", "regimes", "rewards"):
        seen: dict[str, str] = {}
        for name in getattr(config, section):
            if (first := seen.setdefault(name.lower(), name)) != name:
                yield f"{section}.{name}: differs from {first} in upper and lower case only: choose another"


def _of_copies(config: Config) -> Iterator[str]:
    models = [(name, (_resolved(source), config.for_model(name))) for name, source in config.models.items()]
    benchmarks = [(name, _resolved(source)) for name, source in config.benchmarks.items()]
    for section, named in (("models", models), ("benchmarks", benchmarks)):
        for number, (name, values) in enumerate(named):
            if first := next((earlier for earlier, other in named[:number] if other == values), None):
                yield f"{section}.{name}: is {first} under another name: drop one of them, or give it other values"


def _resolved(source: Any) -> dict[str, Any]:
    values: dict[str, Any] = source.params(without={"settings"})
    return values | ({"path": os.path.realpath(values["path"])} if "path" in values else {})


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
        for level in levels if isinstance(levels, list) else []:
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
    if (section := config.open_ended) is None:
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


# ------------------------------------------------------------------------------------------------- development problems


def _of_selection(config: Config) -> Iterator[str]:
    selecting = {where: owner for where, owner in config.further.items() if getattr(owner, "select", False)}
    for where, owner in selecting.items():
        yield from (f"{where}.{mistake}" for mistake in _of_a_selection(config, where.partition(".")[2], owner))
    kinds = {kind for owner in selecting.values() for kind in owner.kinds}
    if config.sweep is not None and not config.sweep.regimes and "verifiable" not in kinds:
        yield "sweep: its problems are not used: add keys to sweep.regimes, set select in a training, or drop it"
    if config.open_ended is not None and config.open_ended.development is not None and "open_ended" not in kinds:
        yield "open_ended.development: not used: set select in a training, or drop it"


def _of_a_selection(config: Config, name: str, owner: Any) -> Iterator[str]:
    if owner.reward is not None:
        yield "select: uses correct answers, which a training on another reward must not see: drop select or reward"
    if name in config.ablations and "dpo" in owner.policies:
        yield "policies: with select only the checkpoint is evaluated: write [grpo]"
    for model in config.models:
        steps = config.for_model(model).steps_of(name)
        if len([k for k in steps if k > 0]) < 2:
            yield f"select: {steps} leaves nothing to choose (M0 is no candidate): list two K or more in steps"
    kinds = owner.kinds
    if "verifiable" in kinds and config.sweep is None:
        yield "select: there are no development problems to choose by: add the section sweep with the key development"
    if "open_ended" in kinds and config.open_ended is not None:
        if config.open_ended.development is None:
            yield "select: there are no open-ended development prompts to choose by: add open_ended.development"
        if config.open_ended.samples_per_prompt < 2:
            yield (
                "select: needs several replies per prompt to estimate the effect of length: set "
                "open_ended.samples_per_prompt to 2 or more"
            )
    of_main = name in config.ablations and not config.ablations[name].has_warmup
    if of_main and config.sweep and name in config.sweep.regimes:
        yield f"select: its checkpoints are the main warm-up's, which sweep.regimes.{name} cannot tune: sweep warmup"


def _of_the_sweep(config: Config) -> Iterator[str]:
    sweep = config.sweep
    if sweep is None:
        return
    for model, source in config.models.items():
        for name, keys in sweep.regimes.items():
            if both := sorted(set(keys) & set(source.settings.get(name, {}))):
                yield f"models.{model}.settings.{name}.{both[0]}: the sweep chooses it: drop one of them"
    n, pool = held_out(config), config.pool
    for model in config.models if n else ():
        if isinstance(pool, SyntheticProblems) and n + (wanted := config.for_model(model).training_set.n) > pool.n:
            yield (
                f"sweep.development: {n} problems held out of the pool's {pool.n} leave fewer than the training_set.n="
                f"{wanted} of {model}: lower one of them or enlarge the pool"
            )
    if unknown := sorted(set(sweep.at) - set(sweep.regimes)):
        yield f"sweep.at.{unknown[0]}: is not swept: choose from {', '.join(sweep.regimes)}"
    yield from [line for name in sweep.regimes for line in _of_swept_keys(config, name)] or _of_candidates(config)


def _of_swept_keys(config: Config, name: str) -> Iterator[str]:
    assert config.sweep is not None
    where, lists = f"sweep.regimes.{name}", config.sweep.regimes[name]
    if name not in (names := [*SECTIONS, *config.ablations, *config.regimes]):
        yield f"{where}: is no section, ablation or entry of regimes: choose from {', '.join(names)}"
        return
    if not lists:
        yield f"{where}: name a key with the values to try"
    section, tried = swept_section(config, name)
    tuned = tuning_keys(type(tried))
    for key, values in lists.items():
        if name in config.ablations and key in getattr(config.ablations[name], section):
            yield f"ablations.{name}.{section}.{key}: the sweep chooses it: drop one of them"
        if key not in tuned:
            yield f"{where}.{key}: not a number that can be tuned in {name}: choose from {', '.join(tuned)}"
        elif len(values) < 2:
            yield f"{where}.{key}: {values} leaves nothing to choose: list two values or more, or drop the key"
        elif repeated(values):
            yield f"{where}.{key}: values repeat: {values}"


def tuning_keys(section: type[Section]) -> list[str]:
    """Return the keys of a section that can be swept. Others change which files exist, or what K counts."""
    numbers = (float, float | None)
    return [
        name
        for name, field in section.model_fields.items()
        if (field.annotation in numbers and name not in PromptMix.model_fields) or name in COUNTS
    ]


def _of_candidates(config: Config) -> Iterator[str]:
    try:
        tried = candidates(config)
        grids = [with_candidates(config)]
        grids += [with_choices(config, {candidate.swept: dict(candidate.values)}) for candidate in tried]
    except ValueError as error:
        yield from str(error).splitlines()
        return
    for whole in grids:
        for model in config.models:
            yield from first_mistake(whole, model)
