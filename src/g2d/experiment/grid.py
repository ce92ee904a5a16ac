"""Policies, harvests and trainings of a configuration, for jobs and table rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from statistics import mean
from typing import Any

from g2d.experiment.arms import Arm, Point, any_arms, arms, online_arm
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.experiment.sections import Config
from g2d.policies.policy import Policy
from g2d.policies.settings import EmbeddedModel
from g2d.regimes.run.prompts import PromptMix
from g2d.settings.cached_method import cached_method


def is_embedded(config: Config, model: str) -> bool:
    return isinstance(config.models[model], EmbeddedModel)


# --------------------------------------------------------------------------------------------------------- policies


@cached_method
def policies(config: Config) -> list[PolicyKey]:
    """Return all evaluated policies, M0 first, then in the order of `ROLES`."""
    evaluated = []
    for model in config.models:
        evaluated.append(PolicyKey(model, "base", 0, 0, None))
        for arm in arms(config, model).values():
            evaluated += keys(config, model, arm, arm.evaluated)
    return evaluated


def evaluated_arms(config: Config) -> dict[str, Arm]:
    names = {key.regime for key in policies(config)}
    return {name: arm for name, arm in any_arms(config).items() if name in names}


def keys(config: Config, model: str, arm: Arm, points: Iterable[Point]) -> Iterator[PolicyKey]:
    return (PolicyKey.of(model, arm, point, seed) for point in points for seed in config.seeds)


def side_by_side(config: Config) -> dict[tuple[str, str], list[PolicyKey]]:
    """Return the policies whose answers the page shows side by side, if a model has two: main grid, first seed."""
    main = [key for key in policies(config) if key.role in ("base", "dpo", "auto", "grpo")]
    first = [key for key in main if key.seed in (None, config.seeds[0])]
    by_model = {model: [key for key in first if key.model == model] for model in config.models}
    return {(model, name): shown for model, shown in by_model.items() if len(shown) > 1 for name in config.benchmarks}


@cached_method
def trainings(config: Config) -> list[PolicyKey]:
    """Return all trained policies: evaluated ones, then online ones that are only harvested or continued."""
    trained = [key for key in policies(config) if key.role != "base"]
    for roles in (("grpo", "ablation", "entry"), ("auto",)):
        for model, role in product(config.models, roles):
            for arm in arms(config, model).values():
                if arm.role == role and arm.phase == "online":
                    trained += keys(config, model, arm, arm.points)
    return list(dict.fromkeys(trained))


def auto_warmups(config: Config) -> list[PolicyKey]:
    return [key for key in trainings(config) if key.role == "auto" and key.arm.phase == "online"]


def trajectories(config: Config) -> dict[PolicyKey, list[PolicyKey]]:
    """Return the policies along each online training, K ascending, by the last one; its log has all steps.

    If each K is a separate training (`warmup.schedule: per_k`), only the last one is listed.
    """
    groups: dict[PolicyKey, list[PolicyKey]] = {}
    for key in trainings(config):
        if key.arm.phase == "online":
            groups.setdefault(replace(key, k=0), []).append(key)
    chains = {}
    for group in groups.values():
        chain = sorted(group, key=lambda key: key.k)
        chains[chain[-1]] = chain[-1:] if getattr(chain[-1].arm.settings, "schedule", "") == "per_k" else chain
    return chains


def with_steps_taken(records: Mapping[PolicyKey, Policy]) -> list[PolicyKey]:
    """Return the policies with the K of tables: the rounded mean over seeds if it differs by seed."""
    steps: dict[PolicyKey, list[int]] = {}
    for key, record in records.items():
        if key.arm.stops:
            steps.setdefault(key.over_seeds, []).append(record.k)
    return [
        replace(key, steps_taken=round(mean(steps[key.over_seeds]))) if key.over_seeds in steps else key
        for key in records
    ]


# --------------------------------------------------------------------------------------------------------- harvests


def harvests(config: Config) -> list[HarvestKey]:
    """Return the harvests of the main grid."""
    return [
        HarvestKey(model, g, k, seed)
        for model in config.models
        for seed in config.seeds
        for g, k in arms(config, model)["dpo"].points
    ]


def variants(config: Config) -> list[str]:
    read = (arm.harvests_read(at) for arm in any_arms(config).values() for at in arm.points)
    return list(dict.fromkeys(variant for harvests in read for variant, _ in harvests if variant))


def factorial_files(config: Config, model: str) -> dict[str, str]:
    calibration = config.for_model(model).calibration
    if not calibration.factorial_temperatures:
        return {}
    folder = f"results/{model}/calibration"
    further = {f"{t:g}": f"{folder}/t{t:g}/rollouts.parquet" for t in calibration.factorial_temperatures}
    return {f"{calibration.temperature:g}": f"{folder}/rollouts.parquet", **further}


# --------------------------------------------------------------------------------------------------------- samples


def sample_files(config: Config) -> dict[tuple[PolicyKey, str], str]:
    """Return the files with several answers per problem (pass@k, maj@n)."""
    places = _samples(config, "samples") | _samples(config, "eval")
    return {at: f"results/{place}.parquet" for at, place in places.items()}


def drawn_beside(config: Config) -> dict[tuple[PolicyKey, str], str]:
    return _samples(config, "samples")


def _samples(config: Config, folder: str) -> dict[tuple[PolicyKey, str], str]:
    return {
        (key, benchmark): f"{key.folder}/{folder}/{benchmark}"
        for key in policies(config)
        if (sampled := config.for_model(key.model).evaluation.sampled) is not None
        and sampled.n > 1
        and sampled.beside_greedy == (folder == "samples")
        for benchmark in config.benchmarks
    }


# --------------------------------------------------------------------------------- ablations, rewards, and controls


def ablation_changes(config: Config) -> dict[str, dict[str, Any]]:
    return {
        name: {
            **dict(_flat("warmup", arm.written.warmup)),
            **({} if arm.written.reward is None else {"reward": arm.written.reward}),
            **arm.written.params(only={*PromptMix.model_fields}),
            **(arm.written.dpo if arm.regime == "dpo" else {}),
        }
        for name, arm in evaluated_arms(config).items()
        if arm.role == "ablation"
    }


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        at = f"{path}.{key}"
        yield from _flat(at, value) if isinstance(value, Mapping) else [(at, value)]


def other_reward(config: Config, variant: str) -> str:
    """Return the reward behind a variant's harvests in words; "" for correctness."""
    return online_arm(any_arms(config), variant).other_reward


def harvest_of(key: PolicyKey) -> HarvestKey:
    assert key.seed is not None
    return HarvestKey(key.model, key.group_size, key.k, key.seed, key.arm.variant)


def harvests_of_controls(config: Config) -> list[HarvestKey]:
    first = [key for key in policies(config) if key.kind == "dpo" and key.seed == config.seeds[0]]
    main = other_reward(config, "")
    return [harvest_of(key) for key in first if key.arm.other_reward != main]
