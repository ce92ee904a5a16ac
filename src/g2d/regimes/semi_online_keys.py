"""The keys of semi-online DPO, which `g2d.regimes.semi_online_dpo` trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import model_validator

from g2d.regimes.groups import GroupLoss
from g2d.regimes.optimizer import OptimizerKeys
from g2d.regimes.regime import OnlineEntry
from g2d.settings import key


class SemiOnlineDpo(OptimizerKeys, GroupLoss, OnlineEntry):
    """DPO on fresh rollouts; how fresh, `sync_every` says (arXiv 2506.21495)."""

    regime: Literal["semi_online_dpo"] = key(..., "Train on pairs of fresh rollouts.")
    sync_every: int | Literal["pass", "never"] = key(
        1,
        "s: updates between two hand-overs of the policy to its generator; pass: those of one pass over the training "
        "set; 1 is online.",
        unit="updates",
        paper="1, 5, 10, 100 and never",
    )
    reference: Literal["base", "start", "sync"] = key(
        "base",
        "M0; the policy of `start`, as for `dpo.start: warmup`; or the policy as it was last handed over to the "
        "generator.",
        paper="base and sync",
    )
    temperature: float = key(
        1.0,
        "Sampling temperature. DPO scores at 1: another one needs `scored_at_one: true`.",
        paper="1.0",
        gt=0,
        le=5,
    )
    scored_at_one: bool = key(False, "Accept that rollouts drawn at another temperature are scored at 1.")
    max_completion_length: int = key(2048, "Token budget of a rollout.", unit="tokens", paper="2048", ge=1)
    batch_size: int = key(64, "Rollouts that transformers generates together; vLLM chooses by itself.", ge=1)
    per_device_batch_size: int = key(8, "Rollouts that pass through the model in training together.", ge=2)
    learning_rate: float = key(1e-5, "Peak learning rate.", paper="1e-6, without LoRA", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="not stated")

    @model_validator(mode="after")
    def _possible(self) -> SemiOnlineDpo:
        if isinstance(self.sync_every, int) and self.sync_every < 1:
            raise ValueError(f"sync_every: {self.sync_every} is no number of updates: write 1 or more, pass or never")
        if self.reference == "sync" and self.sync_every == "never":
            raise ValueError("reference: sync follows a generator that sync_every: never leaves as it is: change one")
        if self.reference == "start" and self.start == "base":
            raise ValueError("reference: start is M0 where start: base: write reference: base, or name a start")
        if self.temperature != 1 and not self.scored_at_one:
            raise ValueError(
                f"temperature: rollouts drawn at {self.temperature:g} are not the policy's own at 1, where DPO scores "
                "them: set it to 1, or accept that with scored_at_one: true"
            )
        if self.grpo_weight and self.sync_every != 1:
            raise ValueError(
                f"grpo_weight: GRPO's loss is for the policy's own rollouts, and with sync_every: {self.sync_every} "
                "they are an older one's: set sync_every to 1 or the weight to 0"
            )
        return self

    def mistakes(self, model: str, n_problems: int, dropout: float) -> Iterator[str]:
        """As for every online entry, and what s and the reference do not go with."""
        yield from super().mistakes(model, n_problems, dropout)
        if self.sync_every == "pass" and n_problems % self.prompts_per_update:
            yield (
                f"sync_every: pass: training_set.n={n_problems} of {model} is no multiple of prompts_per_update="
                f"{self.prompts_per_update}, so no update ends a pass: change one of them, or write a number"
            )
        if self.reference == "sync" and dropout > 0:
            yield (
                f"reference: sync: with lora.dropout={dropout:g} of {model} the policy differs from the copy of it "
                "that is its reference by what is dropped: set lora.dropout to 0 or reference to base"
            )

    def trajectory(self) -> dict[str, Any]:
        """What the run to step K depends on: every key but the grid and what is kept of it."""
        own = self.params(without={"steps", "regime", "keep_rollouts", "policies", "reward", "auto", "select"})
        return own | {"horizon": self.total_steps}
