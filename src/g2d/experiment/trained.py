"""Which policies a grid trains: those that are evaluated, what they go on from, and what a sweep, or the selection of a
checkpoint, chooses between."""

from __future__ import annotations

from dataclasses import replace

from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.keys import PolicyKey
from g2d.experiment.selection import selecting
from g2d.experiment.sweep import Candidate, candidates, sweep_seed, with_candidates


def candidate_policies(config: Config) -> list[tuple[Candidate, PolicyKey]]:
    """The policies that a sweep chooses between, of every model: evaluated on its development problems alone, and no
    part of `grid.policies`. Where there are several group sizes, they have the first one."""
    found, whole = [], with_candidates(config)
    for model in config.models:
        for candidate in candidates(config):
            if candidate.name in whole.regimes:
                named, points = (
                    grid.entry_regimes(whole, candidate.name),
                    grid.entry_points(whole, model, candidate.name),
                )
                role = "entry"
            else:
                named, points = (
                    grid.ablation_regimes(whole, candidate.name),
                    grid.ablation_points(whole, model, candidate.name),
                )
                role = "ablation"
            ((regime, kind),) = named.items()
            key = PolicyKey(model, regime, *points[0], sweep_seed(config), kind=kind, role=role)
            found.append((candidate, key))
    return found


def checkpoints(config: Config) -> dict[PolicyKey, list[PolicyKey]]:
    """By every policy that is a selected checkpoint, those that it is selected from, K ascending: all K of one
    training, which need not be evaluated themselves."""
    found, owners = {}, selecting(config)
    for key in grid.policies(config):
        if key.selected:
            name = owners[key.regime]
            if ablation := config.ablations.get(name):
                trained = f"{name}/grpo" if ablation.has_warmup else "grpo"
                points = grid.ablation_points(config, key.model, name, "grpo")
            else:
                trained, points = name, grid.entry_points(config, key.model, name)
            found[key] = [replace(key, regime=trained, k=k, selected=False) for _, k in points]
    return found


def trainings(config: Config) -> list[PolicyKey]:
    """Every policy that is trained: those that are evaluated, then the online ones that are harvested or continued."""
    found = [key for key in grid.policies(config) if key.role != "base" and not key.selected]
    for model in config.models:
        if grid.is_recorded(config, model):
            continue
        named = [("grpo", "grpo", "grpo", point) for point in grid.warmup_points(config, model) if point[1]]
        named += [
            (f"{name}/grpo", "grpo", "ablation", point)
            for name, ablation in config.ablations.items()
            if ablation.has_warmup
            for point in grid.ablation_points(config, model, name)
            if point[1]
        ]
        named += [
            (name, entry.regime, "entry", point)
            for name, entry in grid.online_entries(config).items()
            for point in grid.entry_points(config, model, name)
        ]
        found += [
            PolicyKey(
                *(model, regime, *point, seed),
                kind=kind,
                role=role,
                online=kind,
                stops=grid.stops_by_itself(config, regime),
            )
            for regime, kind, role, point in named
            for seed in config.seeds
        ]
    return list(dict.fromkeys([*found, *grid.auto_warmups(config)]))
