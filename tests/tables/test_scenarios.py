"""Kinds of prompts that a policy was trained on, in their order."""

from __future__ import annotations

from typing import Any

from g2d.checks.load import load
from g2d.grid.grid import Grid
from tests.configs import OPEN_ENDED, SMALL
from tests.open_ended import JUDGE

ONLINE = {"regime": "semi_online_dpo", "steps": [2], "prompts_per_update": 4}
ENTRIES: dict[str, Any] = {
    "math": ONLINE,
    "chat": ONLINE | {"prompts": "open_ended"},
    "both": ONLINE | {"prompts": "mixed", "open_ended_share": 0.25},
    "math-chat": ONLINE | {"prompts": "open_ended", "start": "math", "start_step": 2},
    "chat-math": ONLINE | {"start": "chat", "start_step": 2},
    "more-math": ONLINE | {"start": "math", "start_step": 2},
    "g2d-chat": ONLINE | {"prompts": "open_ended", "start": "warmup", "start_step": 10},
}
CONFIG = load(
    SMALL | {"training_set": {"n": 10}, "rewards": {"polite": JUDGE}}
    | {"open_ended": OPEN_ENDED, "regimes": ENTRIES}
)  # fmt: skip


def test_the_kinds_of_prompts_behind_a_policy() -> None:
    prompts = {policy.run_name: policy.run.kinds_of_prompts for policy in Grid(CONFIG).policies}
    assert prompts == {
        "base": (),
        **dict.fromkeys(("dpo", "grpo", "math", "more-math"), ("verifiable",)),
        **{"chat": ("open_ended",), "both": ("mixed",), "chat-math": ("open_ended", "verifiable")},
        **dict.fromkeys(("math-chat", "g2d-chat"), ("verifiable", "open_ended")),
    }
