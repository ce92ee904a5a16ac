"""The sweep: every regime's learning rate, and other numbers it is tuned by, chosen on problems of no benchmark.

A candidate is an ablation, or an entry of `regimes`, that nobody has written down: the same rules and scripts, other
values of the swept keys, one seed, one K. `with_candidates` puts them beside the configured ones for the plan alone, so
no table, card or test of differences has them. What is chosen is a small file, which the trainings of the grid take as
an input and fill their settings from (`with_choice`): the graph is the same whatever is chosen.
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
COUNTS = ("epochs", "max_steps", "lag")  # the whole numbers among the keys that can be swept


@dataclass(frozen=True)
class Candidate:
    """One combination of the values of what is swept."""

    swept: str  # warmup, dpo, an ablation or an entry
    values: tuple[tuple[str, float], ...]
    k: int

    @property
    def name(self) -> str:
        """What its folder is called. No name in a configuration has an @."""
        return "@".join([self.swept, *(f"{key}-{value}" for key, value in self.values)])


def swept_keys(config: Config, name: str) -> set[str]:
    """The keys that the sweep chooses of the warm-up, of DPO, of an ablation or of an entry."""
    return set(config.sweep.regimes.get(name, ())) if config.sweep else set()


def sweep_seed(config: Config) -> int:
    """The seed of the candidates."""
    assert config.sweep is not None
    return config.seeds[0] if config.sweep.seed is None else config.sweep.seed


def held_out(config: Config) -> int:
    """Problems of the pool that are held out of it for the sweep."""
    return config.sweep.development if config.sweep and isinstance(config.sweep.development, int) else 0


def development_of(config: Config) -> dict[str, str]:
    """By the problems that policies are evaluated on, those that choose before: they must not share any."""
    chosen_by = {**dict.fromkeys(config.benchmarks, DEVELOPMENT), HELD_OUT: OPEN_ENDED_DEVELOPMENT}
    return {name: problems for name, problems in chosen_by.items() if problems in config.problem_sources}


def swept_section(config: Config, name: str) -> tuple[str, Section]:
    """What is swept, as it is configured, after the name of the section or the regime that settings hold it under."""
    if name in config.ablations:
        has_warmup = config.ablations[name].has_warmup
        return ("warmup", config.warmup_of(name)) if has_warmup else ("dpo", config.ablation_dpo(name))
    return (name, getattr(config, name)) if name in SECTIONS else (config.regimes[name].regime, config.regimes[name])


def candidates(config: Config) -> list[Candidate]:
    """All candidates, by what is swept; of each, in ascending order of the values."""
    found: list[Candidate] = []
    for name, lists in config.sweep.regimes.items() if config.sweep else ():
        (_, base), k = swept_section(config, name), k_of(config, name)
        combined = []
        for values in product(*lists.values()):
            tried = changed(f"sweep.regimes.{name}", base, dict(zip(lists, values, strict=True)))
            combined.append(tuple((key, getattr(tried, key)) for key in lists))  # as the section reads them
        combined.sort(key=lambda values: [value for _, value in values])
        found += [Candidate(name, values, k) for values in combined]
    return found


def k_of(config: Config, name: str) -> int:
    """The K at which the candidates are trained: the configured one, or the largest that every model has."""
    assert config.sweep is not None
    there = sorted(set.intersection(*(set(_steps(config.for_model(model), name)) for model in config.models)))
    chosen = config.sweep.at.get(name, there[-1] if there else 0)
    if chosen not in there:
        raise ValueError(f"sweep.at.{name}: K={chosen} is none that every model has {there}: choose one of them")
    return chosen


def _steps(config: Config, name: str) -> list[int]:
    if name not in SECTIONS:
        return config.steps_of(name)
    needs_warmup = name == "warmup" or config.dpo.start == "warmup"
    return [k for k in config.warmup.steps if k > 0 or not needs_warmup]


def with_candidates(config: Config) -> Config:
    """The configuration with every candidate as an ablation or an entry: what the plan of a grid with a sweep knows."""
    if not (tried := candidates(config)):
        return config
    ablations, regimes = dict(config.ablations), dict(config.regimes)
    for candidate in tried:
        name, values = candidate.swept, dict(candidate.values)
        own: dict[str, Any] = {"steps": [candidate.k]}
        if name in config.regimes:
            entry = config.regimes[name]
            if entry.phase == "online":  # its own K count: the schedule stays that of the entry
                own |= {"policies": ["online"], "horizon": entry.total_steps, "auto": None, "select": False}
            regimes[candidate.name] = _tuned(config, name, values | own)
            continue
        section, _ = swept_section(config, name)
        own["policies"] = ["grpo" if section == "warmup" else "dpo"]
        if name in config.ablations:
            ablations[candidate.name] = _tuned(config, name, values).model_copy(update=own | {"select": False})
        else:
            ablations[candidate.name] = Ablation.model_validate(own | {section: values})
    return config.model_copy(update={"ablations": ablations, "regimes": regimes})


def _tuned(config: Config, name: str, values: dict[str, Any]) -> Any:
    """The warm-up, DPO, an ablation or an entry with other values of what is swept."""
    section, own = swept_section(config, name)
    if ablation := config.ablations.get(name):
        return ablation.model_copy(update={section: getattr(ablation, section) | values})
    return changed(f"sweep.regimes.{name}", own, values)


def with_choice(settings: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """What a training depends on, by section, filled in from the file of what a sweep has chosen; own values stay."""
    section = choice["section"]
    return {**settings, section: {**choice["settings"], **settings[section]}}


def with_choices(config: Config, chosen: Mapping[str, Mapping[str, float]]) -> Config:
    """The configuration as it was trained, with the chosen keys and their values by what is swept."""
    tuned = {name: _tuned(config, name, dict(values)) for name, values in chosen.items()}
    sections: dict[str, Any] = {name: tuned[name] for name in tuned.keys() & SECTIONS.keys()}
    for group in ("ablations", "regimes"):
        sections[group] = {name: tuned.get(name, own) for name, own in getattr(config, group).items()}
    return config.model_copy(update=sections)
