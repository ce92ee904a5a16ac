"""Kinds of prompts that a policy was trained on."""

from __future__ import annotations

from g2d.experiment.arms import Arm, any_arms
from g2d.experiment.sections import Config

THEN = ", then "  # between the kinds of prompts of successive trainings


def prompts_behind(config: Config, regime: str) -> str:
    """Return the kinds of prompts of a policy's trainings, such as "verifiable, then open_ended"; "" for M0."""
    arm: Arm | None = any_arms(config)[regime].online if regime != "base" else None
    kinds: list[str] = []
    while arm is not None:
        kinds.insert(0, arm.asked.prompts)
        arm = arm.start[0] if arm.start else None
    return THEN.join(kind for i, kind in enumerate(kinds) if kind not in kinds[max(i - 1, 0) : i])
