"""An ablation: policies that differ from the main ones in a few keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from g2d.regimes.run.prompt_choice import PromptMix
from g2d.rewards.registry import RewardName
from g2d.settings import Steps, key, repeated


class Ablation(PromptMix):
    """Policies that differ from the main ones in the keys given here (paper, Table 3).

    An ablation with other `warmup` keys or another reward has its own warm-up and harvests.
    """

    steps: Literal["all"] | list[Steps] = key(..., "K to train at; all: the warm-up's.")
    dpo: dict[str, Any] = key({}, "Keys of the dpo section to change.")
    warmup: dict[str, Any] = key({}, "Keys of the warmup section to change.")
    reward: RewardName | None = key(
        None,
        "Reward of verifiable prompts: an entry of `rewards` or `{file: my_reward.py}`; null: that of `warmup`.",
        neutral=None,
    )
    policies: list[Literal["dpo", "grpo"]] = key(
        ["dpo"], "Evaluate DPO on the harvest, the warm-up's policy (grpo), or both.", min_length=1
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Ablation:
        if not self.dpo and not self.has_warmup:
            raise ValueError("nothing differs: change a key of dpo or of warmup")
        if self.prompts == "open_ended" and self.reward is not None:
            raise ValueError("reward: judges verifiable prompts, but prompts: open_ended has none: drop it")
        if self.asks_open_ended and "dpo" in self.policies:
            raise ValueError("policies: harvests have only verifiable prompts: write [grpo], or prompts: verifiable")
        if not self.has_warmup and "grpo" in self.policies:
            raise ValueError("policies: grpo equals the main grid's policy: change a key of warmup, or drop it")
        if self.dpo and "dpo" not in self.policies:
            raise ValueError("dpo: policies has no dpo: add it there, or drop these keys")
        if "steps" in self.warmup:
            raise ValueError("warmup.steps: write the values of K into the ablation's steps")
        if "auto" in self.warmup:
            raise ValueError("warmup.auto: only the main warm-up can stop automatically: drop the key")
        if "reward" in self.warmup:
            raise ValueError("warmup.reward: write it as the ablation's reward, which also judges its harvest of M0")
        if not self.steps:
            raise ValueError("steps is empty: list at least one K, or write all")
        if self.steps != "all" and repeated(self.steps):
            raise ValueError(f"steps: K values repeat: {self.steps}")
        if repeated(self.policies):
            raise ValueError(f"policies repeat: {self.policies}")
        return self

    @property
    def has_warmup(self) -> bool:
        return bool(self.warmup) or self.reward is not None or self.asks_open_ended
