"""Sweep: tune learning rates and other keys on development problems.

A candidate is an ablation or entry with other values of the swept keys, one seed and one K. Trainings read the chosen
values from a file (`with_choice`), so the graph does not depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from g2d.experiment.sections import Ablation, Config
from g2d.problems.settings import DEVELOPMENT, HELD_OUT, OPEN_ENDED_DEVELOPMENT
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.settings import Section
from g2d.settings.mistakes import changed

SECTIONS: dict[str, type[Section]] = {"warmup": Warmup, "dpo": Dpo}
COUNTS = ("epochs", "max_steps")  # swept keys that are whole numbers


@dataclass(frozen=True)
class Candidate:
    swept: str  # warmup, dpo, an ablation or an entry
    values: tuple[tuple[str, float], ...]
    k: int

    @property
    def name(self) -> str:
        return "@".join([self.swept, *(f"{key}-{value}" for key, value in self.values)])


def swept_keys(config: Config, name: str) -> set[str]:
    return set(config.sweep.regimes.get(name, ())) if config.sweep else set()


def sweep_seed(config: Config) -> int:
    assert config.sweep is not None
    return config.seeds[0] if config.sweep.seed is None else config.sweep.seed


def held_out(config: Config) -> int:
    return config.sweep.development if config.sweep and isinstance(config.sweep.development, int) else 0


def development_of(config: Config) -> dict[str, str]:
    chosen_by = {**dict.fromkeys(config.benchmarks, DEVELOPMENT), HELD_OUT: OPEN_ENDED_DEVELOPMENT}
    return {name: problems for name, problems in chosen_by.items() if problems in config.problem_sources}


def swept_section(config: Config, name: str) -> tuple[str, Section]:
    if name in config.ablations:
        has_warmup = config.ablations[name].has_warmup
        return ("warmup", config.warmup_of(name)) if has_warmup else ("dpo", config.ablation_dpo(name))
    return (name, getattr(config, name)) if name in SECTIONS else (config.regimes[name].regime, config.regimes[name])


def candidates(config: Config) -> list[Candidate]:
    """Return all candidates, by what is swept, values ascending."""
    all_candidates: list[Candidate] = []
    for name, lists in config.sweep.regimes.items() if config.sweep else ():
        (_, base), k = swept_section(config, name), k_of(config, name)
        combined = []
        for values in product(*lists.values()):
            tried = changed(f"sweep.regimes.{name}", base, dict(zip(lists, values, strict=True)))
            combined.append(tuple((key, getattr(tried, key)) for key in lists))  # validated values
        combined.sort(key=lambda values: [value for _, value in values])
        all_candidates += [Candidate(name, values, k) for values in combined]
    return all_candidates


def k_of(config: Config, name: str) -> int:
    assert config.sweep is not None
    common = sorted(set.intersection(*(set(_steps(config.for_model(model), name)) for model in config.models)))
    chosen = config.sweep.at.get(name, common[-1] if common else 0)
    if chosen not in common:
        raise ValueError(f"sweep.at.{name}: K={chosen} is not a K of every model {common}: choose one of them")
    return chosen


def _steps(config: Config, name: str) -> list[int]:
    if name not in SECTIONS:
        return config.steps_of(name)
    needs_warmup = name == "warmup" or config.dpo.start == "warmup"
    return [k for k in config.warmup.steps if k > 0 or not needs_warmup]


def with_candidates(config: Config) -> Config:
    if not (tried := candidates(config)):
        return config
    ablations, regimes = dict(config.ablations), dict(config.regimes)
    for candidate in tried:
        name, values = candidate.swept, dict(candidate.values)
        changes: dict[str, Any] = {"steps": [candidate.k]}
        if name in config.regimes:
            entry = config.regimes[name]
            if entry.phase == "online":  # the entry's schedule, also with another K
                changes |= {"horizon": entry.total_steps, "select": False}
            regimes[candidate.name] = _tuned(config, name, values | changes)
            continue
        section, _ = swept_section(config, name)
        changes["policies"] = ["grpo" if section == "warmup" else "dpo"]
        if name in config.ablations:
            ablations[candidate.name] = _tuned(config, name, values).model_copy(update=changes | {"select": False})
        else:
            ablations[candidate.name] = Ablation.model_validate(changes | {section: values})
    return config.model_copy(update={"ablations": ablations, "regimes": regimes})


def _tuned(config: Config, name: str, values: dict[str, Any]) -> Any:
    section, settings = swept_section(config, name)
    if ablation := config.ablations.get(name):
        return ablation.model_copy(update={section: getattr(ablation, section) | values})
    return changed(f"sweep.regimes.{name}", settings, values)


def with_choice(settings: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """Fill open keys of a training's params from a sweep's choice."""
    section = choice["section"]
    return {**settings, section: {**choice["settings"], **settings[section]}}


def with_choices(config: Config, chosen: Mapping[str, Mapping[str, float]]) -> Config:
    tuned = {name: _tuned(config, name, dict(values)) for name, values in chosen.items()}
    sections: dict[str, Any] = {name: tuned[name] for name in tuned.keys() & SECTIONS.keys()}
    for group in ("ablations", "regimes"):
        sections[group] = {name: tuned.get(name, entry) for name, entry in getattr(config, group).items()}
    return config.model_copy(update=sections)
