"""Rules between keys of a configuration. Each `_check_...` yields the mistakes that it finds."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from g2d.config.sections import Ablation, Config, ModelSettings
from g2d.grid.grid import by_section, runs_of
from g2d.grid.runs import POLICY_NAMES, OnlineRun, TrainedRun
from g2d.policies.model_keys import LORA_RANKS
from g2d.problems import synthetic
from g2d.problems.problem_keys import OPEN_ENDED_SETS, SyntheticProblems, place_of
from g2d.regimes.catalogue import AnyEntry
from g2d.regimes.common.prompt_choice import PromptMix
from g2d.regimes.common.regime import OnlineEntry
from g2d.regimes.grpo.keys import AUTO, CORRECTION, Warmup, check_group_sizes
from g2d.rewards.registry import kind_of
from g2d.settings import Section, repeated

# Names in a results folder, and in a model's folder, that are not models and regimes.
RESERVED_FOLDERS = {"problems", "tables", "figures", "logs", "benchmarks", "attempts", "digests", "answers", "report"}
RESERVED_FILES = {*("config.yaml", "plan.json", "jobs.json", "provenance.json", "report.html", "report.zip")}
# Other folders beside runs, and names of policies and of starts of online entries.
RESERVED_RUNS = {"harvest", "calibration", AUTO, "warmup", *POLICY_NAMES}


def mistakes(config: Config) -> list[str]:
    """Return the mistakes of a configuration with valid sections, one line each."""
    lines = [f"seeds repeat: {config.seeds}"] if repeated(config.seeds) else []
    for check in (_check_names, _check_open_ended_prompts, _check_reward_names, _check_generated_problems):
        lines += check(config)
    for model in config.models:
        lines += _mistakes_of(config, model)
    if not lines:
        lines += _check_copies(config)
        lines += _check_idle_ablations(config)
        lines += _check_selection(config)
    return list(dict.fromkeys(lines))  # several models can make the same mistake


def _check_names(config: Config) -> Iterator[str]:
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


def _check_copies(config: Config) -> Iterator[str]:
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


def _check_idle_ablations(config: Config) -> Iterator[str]:
    """Yield ablations that change nothing for any model."""
    for name, ablation in config.ablations.items():
        if all(_is_idle(config.for_model(model), name, ablation) for model in config.models):
            keys = [*(f"dpo.{key}" for key in ablation.dpo), *(f"warmup.{key}" for key in ablation.warmup)]
            verb = "has the value" if len(keys) == 1 else "have the values"
            yield (
                f"ablations.{name}: {', '.join(keys)} {verb} of the main policies, which would be trained again: "
                "change it, or drop the ablation"
            )


def _is_idle(settings: ModelSettings, name: str, ablation: Ablation) -> bool:
    steps = settings.steps_of(name, ablation)
    if ablation.reward is not None or ablation.asks_open_ended or not set(steps) <= set(settings.warmup.steps):
        return False
    main = ablation.model_copy(update={"steps": steps, "dpo": {}, "warmup": {}})
    return (settings.ablated_dpo(name, ablation), settings.ablated_warmup(name, ablation)) == (
        settings.ablated_dpo(name, main),
        settings.ablated_warmup(name, main),
    )


def _resolved(source: Section) -> dict[str, Any]:
    values = source.params(without={"settings", "select_by"})
    path = getattr(source, "path", None)
    if path is not None:
        values["path"] = os.path.realpath(path)
    return values


def _check_reward_names(config: Config) -> Iterator[str]:
    named = {f"{where}.reward": getattr(further, "reward", None) for where, further in config.further.items()}
    named |= {f"open_ended.{key}": getattr(config.open_ended, key, None) for key in ("reward", "judge")}
    for where, reward in named.items():
        if reward is not None and reward not in config.rewards:
            yield f"{where}: {reward} is no entry of rewards ({', '.join(config.rewards) or 'none'}): add it there"


def _check_generated_problems(config: Config) -> Iterator[str]:
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


def _check_open_ended_prompts(config: Config) -> Iterator[str]:
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
        if judge is not None and kind_of(judge).needs_reference:
            yield (
                f"open_ended.{key}: {getattr(section, key)} needs a reference answer, but replies have none: choose a "
                "reward model"
            )


def _check_selection(config: Config) -> Iterator[str]:
    selecting = [name for name, source in config.benchmarks.items() if source.select_by]
    for name in selecting[1:]:
        yield f"benchmarks.{name}.select_by: {selecting[0]} already selects checkpoints: mark only one"
    if len(selecting) == len(config.benchmarks):
        yield f"benchmarks.{selecting[0]}.select_by: no other benchmark is left to compare policies on: add one"
    if selecting:
        yield from _check_selecting_split(config, selecting[0])
    for name, source in config.problem_sources.items():
        if name not in config.benchmarks and source.select_by:
            yield f"{place_of(name)}.select_by: only a benchmark selects checkpoints: drop the key"


def _check_selecting_split(config: Config, selecting: str) -> Iterator[str]:
    """Yield a generated benchmark that selects checkpoints by expressions that may be tested too, for any seeds."""
    chosen = config.benchmarks[selecting]
    for name in config.tested_benchmarks:
        tested = config.benchmarks[name]
        if not isinstance(chosen, SyntheticProblems) or not isinstance(tested, SyntheticProblems):
            continue
        has_same_split = (chosen.family, chosen.split) == (tested.family, tested.split)
        if has_same_split and set(chosen.drawn_levels) & set(tested.drawn_levels):
            yield (
                f"benchmarks.{selecting}.split: it selects checkpoints, but {name} tests expressions of the same split "
                f"({tested.family}, {tested.split}): choose another split"
            )


# ------------------------------------------------------------------------------------------------------- of one model


def _mistakes_of(config: Config, model: str) -> list[str]:
    lines: list[str] = []
    try:
        for mistake in _check_model(config, model):
            lines.append(mistake)
    except ValueError as error:
        lines += str(error).splitlines()
    except LookupError:
        if not lines:  # else a mistake before it is the reason
            raise
    return lines


def _check_model(config: Config, model: str) -> Iterator[str]:
    settings = config.for_model(model)
    if settings.lora.trains_all != config.lora.trains_all:
        yield (f"models.{model}.settings.lora: none must hold for all models: write it outside of models, or drop it")
    warmup = settings.warmup
    check_group_sizes(warmup, config.baselines.grpo_group_sizes, "baselines.grpo_group_sizes")
    yield from _check_warmup(settings, "warmup", warmup)
    if warmup.reward is not None and warmup.reward not in config.rewards:
        yield f"warmup.reward: {warmup.reward} is no entry of rewards: add it there"
    if settings.engine.name == "vllm" and settings.lora.r > LORA_RANKS[-1]:
        yield (
            f"lora.r={settings.lora.r} exceeds {LORA_RANKS[-1]}, the largest rank that vLLM applies: lower it or "
            "change the engine"
        )
    yield from _check_training_set(config, settings, model)
    if warmup.auto is not None and warmup.auto.prompts > settings.training_set.n:
        yield (
            f"warmup.auto.prompts={warmup.auto.prompts} exceeds training_set.n={settings.training_set.n} of {model}: "
            "lower it, or raise training_set.n"
        )
    yield from _missing("dpo.match_pairs_to", settings.dpo.match_pairs_to, "warmup.steps", warmup.steps, model)
    for name, ablation in config.ablations.items():
        yield from _check_ablation(settings, name, ablation, model)
    for name, entry in config.regimes.items():
        if isinstance(entry, OnlineEntry):
            yield from _check_online_entry(config, settings, name, entry, model)
        else:
            yield from _check_offline_entry(settings, name, entry, model)
    trained = by_section(runs_of(config, settings))
    for mistake in _check_all_weights(settings, trained):
        yield f"{mistake} ({model})"


def _check_training_set(config: Config, settings: ModelSettings, model: str) -> Iterator[str]:
    """Yield generated pools with too few problems; `g2d.checks.requirements` counts files."""
    pool = config.pool
    if not isinstance(pool, SyntheticProblems):
        return
    levels = settings.calibration.levels
    n = settings.training_set.n
    if levels == "auto":
        most = pool.n
        pinned = ""
    else:
        share = dict(synthetic.shares(pool.drawn_levels, pool.n))
        most = sum(share.get(level, 0) for level in levels)
        pinned = f" of levels {levels} (calibration.levels)"
    if n > most:
        yield (
            f"training_set.n={n} of {model} exceeds the pool's {most} problems{pinned}: lower it, or raise pool.n="
            f"{pool.n}"
        )


def _missing(
    where: str, wanted: int | list[int] | str | None, key: str, steps: Sequence[int], model: str
) -> Iterator[str]:
    """Yield the `wanted` K, one or a list, that are not in `steps`, the values of a key. Words are ignored."""
    if isinstance(wanted, int):
        wanted = [wanted]
    if not isinstance(wanted, list):
        return
    for step in wanted:
        if step not in steps:
            yield f"{where}: K={step} is not in {key} {steps} of {model}: add it there or choose another"


# ------------------------------------------------------------------------------------------ ablations and entries


def _check_warmup(settings: ModelSettings, where: str, warmup: Warmup) -> Iterator[str]:
    engine = settings.engine.name
    if warmup.sync_every > 1 and engine != "vllm":
        yield (
            f"{where}.sync_every={warmup.sync_every} needs engine.name: vllm, because {engine} generates with the "
            "weights in training: set it to 1 or change the engine"
        )
    idle = list(warmup.params(only={*CORRECTION}))
    if idle and engine != "vllm":
        yield (
            f"{where}.{idle[0]} needs engine.name: vllm, because {engine} and the trainer compute the same "
            "probabilities: drop the key or change the engine"
        )
    if warmup.reference == "sync" and settings.lora.dropout > 0:
        yield (
            f"{where}.reference: sync needs lora.dropout: 0, because dropout (here {settings.lora.dropout:g}) makes "
            "the policy differ from a reference with the same weights: change either"
        )


def _check_ablation(settings: ModelSettings, name: str, ablation: Ablation, model: str) -> Iterator[str]:
    where = f"ablations.{name}"
    dpo = settings.ablated_dpo(name, ablation)
    steps = settings.steps_of(name, ablation)
    if ablation.has_warmup and ablation.reward is None and 0 in steps:
        yield f"{where}: at K=0 there is no warm-up to change: drop 0 from steps"
    if ablation.policies == ["grpo"] and not any(steps):
        yield f"{where}: at K=0 no GRPO is trained: add a K to steps, or dpo to policies"
    if dpo.start == "warmup" and 0 in steps:
        yield f"{where}: at K=0 there is no warm-up to start from: drop 0 from steps"
    if not steps:
        yield f"{where}: warmup.steps {settings.warmup.steps} of {model} has no K for it: add one"
    warmup = settings.warmup
    if ablation.has_warmup:
        warmup = settings.ablated_warmup(name, ablation)
    yield from _check_warmup(settings, f"{where}.warmup", warmup)
    try:
        ablation.open_ended_of(warmup.completions_per_step(warmup.group_sizes[0]) // warmup.group_sizes[0])
    except ValueError as error:
        yield f"{where}.{error}"
    if ablation.prompts == "mixed" and warmup.retire:
        yield f"{where}.prompts: mixed: retire would change the proportions: drop it"
    if ablation.asks_open_ended and warmup.reference == "sync" and warmup.reference_every == "pass":
        yield f"{where}.warmup.reference_every: pass counts only verifiable prompts: write a number of steps"
    key = "its steps" if ablation.has_warmup else "warmup.steps"
    yield from _missing(where, steps, key, warmup.steps, model)
    yield from _missing(where, dpo.match_pairs_to, key, warmup.steps, model)


def _check_online_entry(
    config: Config, settings: ModelSettings, name: str, entry: OnlineEntry, model: str
) -> Iterator[str]:
    where = f"regimes.{name}"
    for mistake in entry.mistakes(model, settings.training_set.n, settings.lora.dropout):
        yield f"{where}.{mistake}"
    path = [name, entry.start]
    while path[-1] not in ("base", "warmup"):
        before = config.regimes.get(path[-1])
        if not isinstance(before, OnlineEntry):
            yield f"{where}.start: {path[-1]} is no online entry of regimes: name one, or write base or warmup"
            return
        if path[-1] in path[:-1]:
            yield f"{where}.start: {' from '.join(path)}: start one of them from base or warmup"
            return
        path.append(before.start)
    if entry.start == "warmup":
        yield from _missing(f"{where}.start_step", entry.start_step, "warmup.steps", settings.warmup.steps, model)
    elif entry.start != "base":
        steps = settings.steps_of(entry.start, config.regimes[entry.start])
        yield from _missing(f"{where}.start_step", entry.start_step, f"steps of {entry.start}", steps, model)


def _check_offline_entry(settings: ModelSettings, name: str, entry: AnyEntry, model: str) -> Iterator[str]:
    where = f"regimes.{name}"
    steps = settings.warmup.steps
    yield from _missing(f"{where}.steps", entry.steps, "warmup.steps", steps, model)
    if entry.start == "warmup" and entry.steps != "all" and 0 in entry.steps:
        yield f"{where}.steps: at K=0 there is no warm-up to start from: drop 0 from {entry.steps}"
    if not settings.steps_of(name, entry):
        yield f"{where}: warmup.steps {steps} of {model} has no K for it: add one"


# -------------------------------------------------------------------------------------------------- all weights


def _check_all_weights(settings: ModelSettings, trained: Mapping[str, list[TrainedRun]]) -> Iterator[str]:
    if not settings.lora.trains_all:
        return
    online = [where for where, runs in trained.items() if isinstance(runs[0], OnlineRun)]
    if settings.engine.name == "vllm" and online:
        yield (
            f"lora: none: vLLM needs adapters during online training ({online[0]}): set engine.name to transformers, "
            "or configure an adapter"
        )
