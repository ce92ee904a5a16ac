"""The grid: which policies a configuration asks for, where each one lives, and what each is made from.

Pure functions of the configuration; the Snakefile turns them into jobs and the tables into rows, so both always
agree on what exists. A new way to train a policy (a *regime*) adds its policies here and one rule that makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import mean
from typing import Any

from g2d.experiment.config import Config
from g2d.experiment.entries import entry_steps
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.experiment.selection import SELECTED, evaluated, selecting
from g2d.policies.policy import Policy
from g2d.policies.settings import RecordedModel
from g2d.regimes.asked import AskedPrompts
from g2d.regimes.warmup import AUTO
from g2d.rewards.catalogue import TRUTH, words_of

AUTO_REGIME = f"{AUTO}/dpo"  # DPO on the harvest of a warm-up that stopped by itself


def is_recorded(config: Config, model: str) -> bool:
    """Whether a model is a file of recorded completions, which can be analysed but not trained."""
    return isinstance(config.models[model], RecordedModel)


def warmup_points(config: Config, model: str) -> list[tuple[int, int]]:
    """(G, K) of every harvested policy of a model; K=0 is M0 and has no group size, hence G=0."""
    if is_recorded(config, model):
        return [(0, 0)]
    warmup = config.for_model(model).warmup
    return [(0, 0)] * (0 in warmup.steps) + [(g, k) for g in warmup.group_sizes for k in warmup.steps if k > 0]


def grpo_points(config: Config, model: str) -> list[tuple[int, int]]:
    """(G, K) of the GRPO policies reported as baselines: every baseline group size at the largest K."""
    resolved = config.for_model(model)
    last = max(resolved.warmup.steps)
    if is_recorded(config, model) or last == 0:
        return []
    return [(g, last) for g in resolved.baselines.grpo_group_sizes]


def learning_curve(config: Config, model: str) -> list[tuple[int, int]]:
    """(G, K) of GRPO alone before the largest K, where it is reported, too."""
    last, every = grpo_points(config, model), config.for_model(model).baselines.grpo_steps == "all"
    sizes = {g for g, _ in last} if every else set()
    return [(g, k) for g, k in warmup_points(config, model) if g in sizes and (g, k) not in last]


def chain_predecessor(config: Config, model: str, group_size: int, k: int, variant: str = "") -> int | None:
    """The largest smaller K whose checkpoint a chain continues from; None where it starts from M0.

    `variant` names the ablation whose warm-up it is, or the online entry of `regimes`, if it is not the main one.
    """
    if variant in (online := online_entries(config)):
        return max((step for step in online[variant].steps if step < k), default=None)
    warmup = config.for_model(model).warmup_of(variant)
    if warmup.schedule == "per_k" or group_size not in warmup.group_sizes:
        return None
    return max((step for step in warmup.steps if 0 < step < k), default=None)


def harvests(config: Config) -> list[HarvestKey]:
    """Every harvest of the grid."""
    return [
        HarvestKey(model, g, k, seed)
        for model in config.models
        for seed in config.seeds
        for g, k in warmup_points(config, model)
    ]


def auto_points(config: Config, model: str) -> list[tuple[int, int]]:
    """(G, K) of the policies whose warm-up stops by itself; K is the most steps it may take."""
    warmup = config.for_model(model).warmup
    if is_recorded(config, model) or warmup.auto is None:
        return []
    return [(g, warmup.total_steps) for g in warmup.group_sizes]


def auto_warmups(config: Config) -> list[PolicyKey]:
    """Every warm-up that stops by itself; not evaluated, DPO on its harvest is."""
    return [
        PolicyKey(model, f"{AUTO}/grpo", g, k, seed, kind="grpo", role="auto")
        for model in config.models
        for g, k in auto_points(config, model)
        for seed in config.seeds
    ]


def with_steps_taken(records: Mapping[PolicyKey, Policy]) -> list[PolicyKey]:
    """The policies with the K that tables show, which is the same for all seeds, as a row is about all of them.

    Where one stops by itself, or is selected, every seed decides alone; K is then the mean of their steps, rounded.

    Args:
        records: the finished policies.
    """
    taken: dict[PolicyKey, list[int]] = {}
    for key, record in records.items():
        if key.role == "auto" or key.stops or key.selected:
            taken.setdefault(key.over_seeds, []).append(record.k)
    return [
        replace(key, steps_taken=round(mean(taken[key.over_seeds]))) if key.over_seeds in taken else key
        for key in records
    ]


def probes(config: Config) -> list[HarvestKey]:
    """The harvests that are probed: the first seed's."""
    return [key for key in harvests(config) if key.seed == config.seeds[0]]


def variants(config: Config) -> list[str]:
    """Whatever has a harvest of its own beside the main grid: ablations with another warm-up, online entries of
    `regimes` whose harvest is trained on, those in rounds, and the warm-up that stops by itself, if any."""
    own = [name for name, ablation in config.ablations.items() if ablation.has_warmup]
    own += [
        name for name, entry in online_entries(config).items() if "dpo" in entry.policies or name in asked_for(config)
    ]
    own += [name for name, entry in in_rounds(config).items() if max(entry.rounds) > 1]
    return [*own, *[AUTO] * bool(auto_warmups(config))]


def asked_for(config: Config) -> set[str]:
    """Whose harvests, beside the main grid's, the offline entries of `regimes` are trained on."""
    return {entry.harvest for entry in config.regimes.values() if entry.phase == "offline" and entry.harvest}


def online_entries(config: Config) -> dict[str, Any]:
    """The entries of `regimes` that are trained on fresh rollouts."""
    return {name: entry for name, entry in config.regimes.items() if entry.phase == "online"}


def stops_by_itself(config: Config, name: str) -> bool:
    """Whether it is an online entry that stops by itself, at the latest at its K."""
    entry = online_entries(config).get(name)
    return entry is not None and entry.auto is not None


def start_of(config: Config, model: str, name: str, seed: int | None = None) -> PolicyKey | None:
    """The policy that an online entry starts from; None where that is M0."""
    entry = online_entries(config)[name]
    if entry.start == "base":
        return None
    if entry.start == "warmup":
        return PolicyKey(model, "grpo", config.for_model(model).warmup.group_sizes[0], entry.start_step, seed)
    before, kind = start_of(config, model, entry.start, seed), config.regimes[entry.start].regime
    at = (config.regimes[entry.start].responses, entry.start_step, seed)
    return PolicyKey(model, entry.start, *at, kind=kind, role="entry", online=kind, start=before)


def in_rounds(config: Config) -> dict[str, Any]:
    """The entries of `regimes` that are trained in rounds of harvest and training."""
    return {name: entry for name, entry in config.regimes.items() if entry.phase == "rounds"}


def harvest_points(config: Config, model: str, variant: str = "") -> list[tuple[int, int]]:
    """(G, K) that an ablation can be trained at: the main grid's at its first group size, or a variant's own."""
    if variant in (online := online_entries(config)):
        return [(online[variant].responses, k) for k in online[variant].steps]
    warmup = config.for_model(model).warmup_of(variant)
    return [(warmup.group_sizes[0] if k else 0, k) for k in warmup.steps]


def ablation_regimes(config: Config, name: str) -> dict[str, str]:
    """What an ablation's policies are called, which is the folder they lie in, and how each is trained."""
    ablation = config.ablations[name]
    kinds = {f"{name}/{kind}": str(kind) for kind in ablation.policies} if ablation.has_warmup else {name: "dpo"}
    return {f"{name}/{SELECTED}": "grpo"} if ablation.select else kinds


def entry_regimes(config: Config, name: str) -> dict[str, str]:
    """What an entry's policies are called, and how each is trained."""
    entry = config.regimes[name]
    if entry.phase == "offline":
        return {f"{entry.harvest}/{name}" if entry.harvest else name: entry.regime}
    if entry.phase == "rounds":
        return {name: entry.regime}
    named = {"online": (f"{name}/{SELECTED}" if entry.select else name, entry.regime), "dpo": (f"{name}/dpo", "dpo")}
    return dict(named[kind] for kind in entry.policies)


def online_phases(config: Config) -> dict[str, str]:
    """By the name of a policy, the ablation or the entry of `regimes` whose online phase is behind it, where it is not
    the main warm-up."""
    own = variants(config)
    behind = {regime: name for name in config.ablations if name in own for regime in ablation_regimes(config, name)}
    for name, entry in config.regimes.items():
        whose = entry.harvest if entry.phase == "offline" else name
        behind |= dict.fromkeys(entry_regimes(config, name), whose) if whose else {}
    return behind


def reward_name(config: Config, variant: str) -> str | None:
    """The entry of `rewards` that judges the rollouts of an ablation or an online entry; None where the truth does."""
    owner: Any = config.ablations.get(variant) or online_entries(config).get(variant)
    return None if owner is None else owner.reward


def other_reward(config: Config, variant: str) -> str:
    """In words, what an ablation or an online entry is trained on where that is not the truth; "" where it is."""
    name = reward_name(config, variant)
    settings = TRUTH if name is None else config.rewards[name]
    return "" if settings == TRUTH else words_of(settings)


def judged_again(config: Config, model: str, variant: str, k: int) -> bool:
    """Whether a variant's harvest is M0's, already drawn for the main grid, under another reward."""
    return k == 0 and reward_name(config, variant) is not None and 0 in config.for_model(model).warmup.steps


def entry_points(config: Config, model: str, name: str) -> list[tuple[int, int]]:
    """(G, K) at which an entry of `regimes` is trained: on every harvest of its K, or on rollouts of its own."""
    entry = config.regimes[name]
    if entry.phase == "online":
        return [(entry.responses, k) for k in entry.steps]
    if entry.phase == "rounds":
        return [(0, k) for k in entry.rounds]
    points = harvest_points(config, model, entry.harvest) if entry.harvest else warmup_points(config, model)
    return [(g, k) for g, k in points if k in entry_steps(config.for_model(model), name)]


def ablation_changes(config: Config) -> dict[str, dict[str, Any]]:
    """By regime, the keys that an ablation changes, with their values."""
    return {
        regime: {
            **{f"warmup.{name}": value for name, value in ablation.warmup.items()},
            **({} if ablation.reward is None else {"reward": ablation.reward}),
            **ablation.params(only={*AskedPrompts.model_fields, "select"}),
            **(ablation.dpo if kind == "dpo" else {}),
        }
        for name, ablation in config.ablations.items()
        for regime, kind in ablation_regimes(config, name).items()
    }


def ablation_points(config: Config, model: str, name: str, kind: str = "dpo") -> list[tuple[int, int]]:
    """(G, K) at which an ablation is trained; GRPO itself takes at least a step."""
    steps = config.for_model(model).ablation_steps(name)
    points = harvest_points(config, model, name if config.ablations[name].has_warmup else "")
    return [(g, k) for g, k in points if k in steps and (k > 0 or kind != "grpo")]


def factorial_files(config: Config, model: str) -> dict[str, str]:
    """Calibration rollouts by temperature, of a model that is calibrated at several; of others, none."""
    calibration = config.for_model(model).calibration
    if is_recorded(config, model) or not calibration.factorial_temperatures:
        return {}
    folder = f"results/{model}/calibration"
    further = {f"{t:g}": f"{folder}/t{t:g}/rollouts.parquet" for t in calibration.factorial_temperatures}
    return {f"{calibration.temperature:g}": f"{folder}/rollouts.parquet", **further}


def policies(config: Config) -> list[PolicyKey]:
    """Every policy that is evaluated, M0 first, then as `ROLES` has them."""
    found, entries, behind, chosen = [], online_entries(config), online_phases(config), selecting(config)
    rewards = {regime: other_reward(config, name) for regime, name in behind.items()}
    online = {regime: entries[name].regime for regime, name in behind.items() if name in entries}
    for model in config.models:
        if is_recorded(config, model):
            continue
        found.append(PolicyKey(model, "base", 0, 0, None))
        named = [("dpo", "dpo", "dpo", point) for point in warmup_points(config, model)]
        named += [(AUTO_REGIME, "dpo", "auto", point) for point in auto_points(config, model)]
        named += [
            (regime, kind, "entry", point)
            for name in config.regimes
            for regime, kind in entry_regimes(config, name).items()
            for point in evaluated(config.regimes[name], entry_points(config, model, name))
        ]
        named += [("grpo", "grpo", "grpo", point) for point in grpo_points(config, model)]
        named += [("grpo", "grpo", "curve", point) for point in learning_curve(config, model)]
        named += [
            (regime, kind, "ablation", point)
            for name in config.ablations
            for regime, kind in ablation_regimes(config, name).items()
            for point in evaluated(config.ablations[name], ablation_points(config, model, name, kind))
        ]
        found += [
            PolicyKey(
                *(model, regime, *point, seed),
                kind=kind,
                role=role,
                online=online.get(regime, "grpo"),
                reward=rewards.get(regime, ""),
                stops=regime in online and stops_by_itself(config, behind[regime]),
                start=start_of(config, model, behind[regime], seed) if regime in online else None,
                selected=regime in chosen,
            )
            for regime, kind, role, point in named
            for seed in config.seeds
        ]
    return found
