"""Interim analyses (docs/race.md): their plan, the looks, and looks.csv."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from g2d.analysis.looks import Asked, Look, Plan, Steps, take_look
from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.race import PLAN, at_look, last_of, taken, whole
from g2d.experiment.sections import Looks
from g2d.jobs.files import read_json, write_json
from g2d.rollouts.rollout import CLUSTER, read_rollouts
from g2d.settings import ConfigError
from g2d.tables.evaluations import clusters_of, crossed
from g2d.tables.families import ALIKE, CALLED, ENTRIES_AGAINST_COMMON, families
from g2d.tables.frames import Rows, columns, table_of

# Keys that do not affect the answers to the first benchmark, so they may change between looks.
WITHOUT_ANSWERS = frozenset(
    {
        *("title", "demonstration", "seeds", "looks", "benchmarks", "baselines"),
        *("contamination", "probe"),
    }
)
LOOK = TypeAdapter(Look)  # reads and writes the JSON of a file
LOOK_COLUMNS = columns(
    "model benchmark family policy reference look n_seeds information difference standard_error low high",
    "p_value boundary p_margin boundary_margin verdict chance_next chance",
)


def plan_of(config: Config, model: str, steps: Steps = "holm") -> Plan:
    """Plan the looks of a model on the first benchmark; a ConfigError if there is nothing to compare."""
    assert config.looks is not None
    looks, benchmark = config.looks, next(iter(config.benchmarks))
    policies = dict.fromkeys(key.over_seeds for key in grid.policies(whole(config)) if key.model == model)
    comparisons = tuple(
        Asked(family, at.name, reference.name)
        for family, pairs in families([(key, benchmark) for key in policies])
        for (at, _), (reference, _) in pairs
        if _is_planned(family)
    )
    if not comparisons:
        raise ConfigError(f"seeds.looks: {model} has no comparison to look at: write seeds as a list, or add a K")
    names = {name for comparison in comparisons for name in (comparison.policy, comparison.reference)}
    compared = [key for key in policies if key.name in names]
    return Plan(
        looks=tuple(looks.looks),
        asked=comparisons,
        margin=config.margin,
        spending=looks.spending,
        error=looks.error,
        futility=looks.futility,
        alike=tuple(key.name for key in compared if key.role in ALIKE),
        without_seeds=tuple(key.name for key in compared if key.role == "base"),
        steps=steps,
    )


def steps_of(looks: Mapping[str, Mapping[str, Any]]) -> Steps:
    """Return `Plan.steps` of these looks, or a new plan's."""
    plans = [model.get("plan", {}) for look in looks.values() for model in look.get("models", {}).values()]
    return plans[0].get("steps", "hochberg") if plans else "holm"


def _is_planned(family: str) -> bool:
    """Return whether looks decide a family. Pairs of K, regimes against the main grid, and other policies against M0
    are left out."""
    if family == ENTRIES_AGAINST_COMMON:
        return False
    return not family.endswith("K > 0") and (not family.endswith("M0") or family.startswith(CALLED["entry"]))


def written_plan(config: Config, steps: Steps = "holm") -> dict[str, Any]:
    assert config.looks is not None
    benchmark = next(iter(config.benchmarks))
    settings = {name: value for name, value in config.identity.items() if name not in WITHOUT_ANSWERS}
    return {
        "plan": config.looks.plan,
        "models": {model: asdict(plan_of(config, model, steps)) for model in config.models},
        "benchmark": {benchmark: config.benchmarks[benchmark].params()},
        "settings": settings,
    }


def write_plan(config: Config, results: str | Path = "results") -> None:
    assert config.looks is not None
    if not taken(config.looks, results):
        after = other_plans(config.looks, results)
        write_json(Path(results, config.looks.folder, PLAN), written_plan(config) | {"after": after})


def require_plan(config: Config, results: str | Path = "results") -> None:
    """Raise a ConfigError if existing looks do not follow the configured plan or were edited."""
    assert config.looks is not None
    if not (looks := taken(config.looks, results)):
        return
    steps = steps_of(looks)
    current, file = json.loads(json.dumps(written_plan(config, steps))), Path(results, config.looks.folder, PLAN)
    try:
        before = read_json(file)
        for plan in before["models"].values():
            if not plan.get("waiting"):
                plan.pop("waiting", None)  # written by earlier versions
            plan.setdefault("steps", "hochberg")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"{file}: looks were taken by it, and it cannot be read ({error}): put it back") from None
    if key := _first_difference({name: before.get(name) for name in current}, current):
        raise ConfigError(
            f"seeds.looks: {key} is not what it was at the first look ({file}): put it back, or begin a new plan over "
            "what is there with a name of its own (seeds: {plan: NAME})"
        )
    _require_consistent(config, looks, steps)


def _require_consistent(config: Config, looks: Mapping[str, Mapping[str, Any]], steps: Steps) -> None:
    """Raise a ConfigError if the seeds of a look do not follow from its comparisons."""
    plans = {model: plan_of(config, model, steps) for model in config.models}
    seeds: dict[str, int] = {}
    for file, look in looks.items():
        try:
            models = {model: LOOK.validate_python(record) for model, record in look["models"].items()}
            seeds |= _seeds_after(models.values())
            consistent = (look["seeds"], look["next"]) == (seeds, _next(models.values()))
            consistent &= all(own.plan == plans[model] for model, own in models.items())
        except (ValidationError, KeyError, AttributeError):
            consistent = False
        if not consistent:
            raise ConfigError(
                f"{file}: its seeds do not follow from its comparisons by the plan, so it was edited: put it back as "
                "it was, or delete its folder to begin the looks again"
            )


def _seeds_after(looks: Iterable[Look]) -> dict[str, int]:
    return {
        own.policy: own.next_seeds
        for look in looks
        for own in look.policies
        if own.policy not in look.plan.without_seeds
    }


def _next(looks: Iterable[Look]) -> dict[str, int]:
    return {policy: n for look in looks for policy, n in look.next.items()}


def other_plans(looks: Looks | None, results: str | Path = "results") -> list[str]:
    folders = {file.parent.relative_to(results).as_posix() for file in Path(results).glob("looks/**/look1.json")}
    return sorted(folders - {looks.folder if looks else ""})


def _first_difference(before: Any, now: Any, path: str = "") -> str:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = (*now, *(name for name in before if name not in now))
        paths = (_first_difference(before.get(name), now.get(name), f"{path}.{name}".lstrip(".")) for name in names)
        return next(filter(None, paths), "")
    return "" if before == now else path


def take(config: Config, number: int, results: str | Path = "results") -> dict[str, Any]:
    """Take look number 1, 2 ... and return the content of its file: numbers of seeds by policy (`seeds`), of policies
    that get further ones (`next`), and the look of each unfinished model (`models`)."""
    assert config.looks is not None
    before = dict(list(taken(config.looks, results).items())[: number - 1])
    config, benchmark = at_look(config, before), next(iter(config.benchmarks))
    models: dict[str, Look] = {}
    seeds = dict(last["seeds"]) if (last := last_of(before)) else {}
    for model in config.models:
        plan, earlier = plan_of(config, model, steps_of(before)), looks_of(model, before)
        if earlier and not earlier[-1].next:
            continue
        answers: dict[str, dict[Any, Any]] = {}
        for key in grid.policies(config):
            if key.name in plan.policies and (key.seed is not None or key.name in plan.without_seeds):
                file = Path(results, key.folder, f"eval/{benchmark}.parquet")
                answers.setdefault(key.name, {})[key] = read_rollouts(file, ("problem_id", "reward", CLUSTER))
        clusters = clusters_of(next(iter(answers.values())))
        by_name = {name: crossed(by_key, benchmark) for name, by_key in answers.items()}
        models[model] = take_look(plan, by_name, earlier, clusters)
    return {
        "look": number,
        "seeds": seeds | _seeds_after(models.values()),
        "next": _next(models.values()),
        "models": {model: LOOK.dump_python(look, mode="json") for model, look in models.items()},
    }


def looks_of(model: str, looks: Mapping[str, Mapping[str, Any]]) -> list[Look]:
    records = (look["models"].get(model) for look in looks.values())
    return [LOOK.validate_python(record) for record in records if record]


@table_of(LOOK_COLUMNS)
def looks_table(config: Config, looks: Mapping[str, Mapping[str, Any]]) -> Rows:
    benchmark = next(iter(config.benchmarks))
    for model in config.models:
        for look in looks_of(model, looks):
            for comparison in look.comparisons:
                if comparison.look == look.number and comparison.n_seeds:
                    row = {"model": model, "benchmark": benchmark} | asdict(comparison)
                    yield row | {"information": comparison.fractions[-1], "difference": comparison.estimate}
