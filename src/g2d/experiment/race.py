"""Seeds of each policy after the interim analyses so far.

Their files, `results/looks/look1.json` and so on, are the only state: `g2d.analysis.looks` decides, `g2d.tables.looks`
writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from g2d.experiment.keys import PolicyKey, called, label_of
from g2d.experiment.sections import Config, Looks, Reached
from g2d.jobs.files import read_json
from g2d.settings import ConfigError

PLAN = "plan.json"  # in the looks' folder; `g2d.tables.dated_plan` writes the whole grid's in results
POLICY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)+")  # `PolicyKey.name`


def look_name(looks: Looks, number: int) -> str:
    return f"results/{looks.folder}/look{number}.json"


def decided(config: Config, results: str | Path = "results") -> Config:
    """Return the configuration with the seeds after the interim analyses so far."""
    return at_end(config, taken(config.looks, results)) if config.looks else config


def at_end(config: Config, looks: Mapping[str, Mapping[str, Any]]) -> Config:
    assert config.looks is not None
    until = config.looks.until
    if until is None or len(looks) < until:
        return at_look(config, looks)
    reached = at_look(config, dict(islice(looks.items(), until - 1))).reached
    assert reached is not None
    return _having(config, replace(reached, files=tuple(looks)[:until], is_over=True))


def at_look(config: Config, looks: Mapping[str, Mapping[str, Any]]) -> Config:
    last = last_of(looks)
    return _having(config, Reached(dict(last["seeds"]), tuple(looks), not last["next"]) if last else Reached())


def whole(config: Config) -> Config:
    return _having(config, None)


def _having(config: Config, reached: Reached | None) -> Config:
    copy = config.model_copy()
    copy._reached = reached
    return copy


def last_of(looks: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the last interim analysis, None before the first."""
    return list(looks.values())[-1] if looks else None


def taken(looks: Looks, results: str | Path = "results") -> dict[str, dict[str, Any]]:
    """Return the finished interim analyses, by file, in order.

    Raises:
        ConfigError: one is missing or cannot be read.
    """
    analyses: dict[str, dict[str, Any]] = {}
    folder = Path(results, looks.folder)
    while (file := folder / f"look{len(analyses) + 1}.json").exists():
        try:
            look = read_json(file)
            _check(look, len(analyses) + 1, looks)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{file}: cannot be read as an interim analysis ({error}): restore the file") from None
        analyses[look_name(looks, len(analyses) + 1)] = look
    if later := [
        file.name for file in folder.glob("look*.json") if f"results/{looks.folder}/{file.name}" not in analyses
    ]:
        raise ConfigError(f"{folder}/look{len(analyses) + 1}.json is missing, but {min(later)} exists: restore it")
    return analyses


def _check(look: Mapping[str, Any], number: int, looks: Looks) -> None:
    if number > looks.most or look["look"] != number:
        raise ValueError(f"it is look {look['look']}, and seeds.looks={looks.looks} has {looks.most} at most")
    for policy, n in (*look["seeds"].items(), *look["next"].items()):
        if not POLICY.fullmatch(policy):
            raise ValueError(f"{policy!r} is no policy")
        if type(n) is not int or not 0 <= n <= looks.looks[-1]:
            raise ValueError(f"{policy} has {n!r} seeds, and seeds.looks={looks.looks} has {looks.looks[-1]} at most")


def n_seeds(config: Config, key: PolicyKey) -> int:
    if config.reached is None:
        return len(config.seeds)
    assert config.looks is not None
    return config.reached.seeds.get(key.name, config.looks.looks[0])


# ------------------------------------------------------------------------------------------------------------ in words


def policy_words(name: str) -> str:
    _, _, of_model = name.partition("/")
    if of_model == "base":
        return called(of_model, 0)
    regime, group, k = of_model.rsplit("/", 2)
    return called(label_of(regime, int(k[1:])), k[1:], int(group[1:]))


def further_words(look: Mapping[str, Any]) -> str:
    cost = look["cost"]

    def amount(ending: str) -> str:
        hours = cost.get(f"hours{ending}")
        return "an unknown number of device-hours" if hours is None else f"{hours:.2f} device-hours"

    words = f"about {amount('')}, at most {amount('_at_most')} for all looks that are left"
    return f"further seeds for {len(look['next'])} of the policies, {words}"


def next_look_words(config: Config, looks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    assert config.looks is not None
    looks = dict(islice(looks.items(), config.looks.until))
    number, last = len(looks) + 1, last_of(looks)
    if last is None:
        return [f"look {number} comes first, at {config.looks.looks[0]} seeds; {config.looks.looks[-1]} are the most"]
    if not last["next"]:
        return [f"the looks are over: look {number - 1} was the last"]
    ends = "" if config.looks.until != len(looks) else f"seeds.until={len(looks)}: no further look is taken; "
    return [f"{ends}look {number}: {further_words(last)}"] + [
        f"open: {policy_words(own['policy'])} against {policy_words(own['reference'])}, settled by the next look with "
        f"{100 * own['chance_next']:.0f} %, by the last with {100 * own['chance']:.0f} %"
        for model in last["models"].values()
        for own in model["comparisons"]
        if own["verdict"] == "open"
    ]
