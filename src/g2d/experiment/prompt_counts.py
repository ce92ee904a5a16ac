"""Prompts that a policy was trained on."""

from __future__ import annotations

from collections.abc import Iterator

from g2d.experiment.arms import Arm, any_arms
from g2d.experiment.keys import PolicyKey
from g2d.experiment.sections import Config
from g2d.regimes.grpo.keys import Warmup

THEN = ", then "  # between the kinds of prompts of successive trainings


def prompts_asked(config: Config, key: PolicyKey) -> int:
    """Return the number of prompts sampled to make a policy, by online steps and harvests."""
    harvested = config.for_model(key.model).training_set.n if key.arm.phase == "offline" else 0
    asked = sum(prompts for _, prompts, _ in online_phases(key))
    return harvested + asked + _prompts_of_replayed(config, key)


def _prompts_of_replayed(config: Config, key: PolicyKey) -> int:
    settings = key.arm.online.settings if key.steps_spent else None
    if not isinstance(settings, Warmup) or settings.replay is None or settings.replay.harvest_step is None:
        return 0
    resolved = config.for_model(key.model)
    before = resolved.warmup.prompts_asked(settings.replay.harvest_step, resolved.warmup.group_sizes[0])
    return resolved.training_set.n + before


def online_phases(key: PolicyKey) -> Iterator[tuple[str, int, int]]:
    steps, group_size, online = key.steps_spent, key.group_size, key.arm.online
    if steps:
        yield online.regime, online.settings.prompts_asked(steps, group_size), group_size
    if key.start is not None:
        yield from online_phases(key.start)


def prompts_behind(config: Config, regime: str) -> str:
    """Return the kinds of prompts of a policy's trainings, such as "verifiable, then open_ended"; "" for M0."""
    arm: Arm | None = any_arms(config)[regime].online if regime != "base" else None
    kinds: list[str] = []
    while arm is not None:
        kinds.insert(0, arm.asked.prompts)
        arm = arm.start[0] if arm.start else None
    return THEN.join(kind for i, kind in enumerate(kinds) if kind not in kinds[max(i - 1, 0) : i])
