"""The sections of a configuration that are about the grid as a whole: the probe before it, ablations and baselines."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator, model_validator

from g2d.regimes.prompt_mix import PromptMix
from g2d.regimes.regime import Selects
from g2d.settings import Name, Section, Steps, key, repeated


class Probe(Section):
    """A cheap look before the grid: a few prompts harvested at every K of the first seed (`snakemake advice`)."""

    prompts: int = key(
        50, "Prompts harvested, the first ones of the training set; all of them where it has fewer.", ge=2
    )
    compare: bool = key(False, "Build the advice with the whole grid too, and compare it with what the grid has shown.")


class Frontier(Section):
    """Accuracy against cost, over all regimes (`g2d.analysis.frontier`)."""

    margin: float = key(
        0.02,
        "By how much a policy may be worse than the best one and still be good enough, in accuracy (0.02: two points).",
        gt=0,
        lt=1,
    )


class Collapse(Section):
    """What counts as the collapse of an online training (`g2d.analysis.dynamics`)."""

    share: float = key(
        0.2, "Of the entropy, or the length, that a training began with: less than that is a collapse.", gt=0, lt=1
    )


class Contamination(Section):
    """Memory or reasoning: M0 continues the beginning of every question (`g2d.analysis.contamination`)."""

    benchmarks: list[Name] = key([], "Whose questions; empty: those of all benchmarks.")
    share: float = key(0.6, "Share of a question's words that is shown, rounded down.", gt=0, lt=1)
    max_completion_length: int = key(1024, "Token budget of a continuation.", unit="tokens", ge=1)
    batch_size: int = key(64, "Continuations generated together by transformers; vLLM batches by itself.", ge=1)

    @field_validator("benchmarks")
    @classmethod
    def _distinct(cls, benchmarks: list[str]) -> list[str]:
        if repeated(benchmarks):
            raise ValueError(f"benchmarks repeat: {benchmarks}")
        return benchmarks


class Ablation(Selects, PromptMix):
    """Policies that differ from the main ones in named keys (paper, Table 3): one confounder, one row.

    With other keys of `warmup`, or another reward, they have a warm-up, and a harvest, of their own. One that differs
    in `select` alone is GRPO of the main grid.
    """

    steps: Literal["all"] | list[Steps] = key(..., "The values of K to train it at; all: every K that it can have.")
    dpo: dict[str, Any] = key({}, "Keys of the dpo section with their other values.")
    warmup: dict[str, Any] = key({}, "Keys of the warmup section with their other values.")
    reward: Name | None = key(
        None,
        "The entry of `rewards` that judges its warm-up, on verifiable prompts, and its harvest, at K=0 that of M0; "
        "null for the truth.",
        neutral=None,
    )
    policies: list[Literal["dpo", "grpo"]] = key(
        ["dpo"], "What is evaluated: dpo on the harvest, or the warmed-up policy itself (grpo).", min_length=1
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Ablation:
        if not self.dpo and not self.has_warmup and not self.select:
            raise ValueError("nothing differs: give a key of dpo or of warmup another value")
        if self.prompts == "open_ended" and self.reward is not None:
            raise ValueError("reward: judges verifiable prompts, and none is asked: drop it")
        if self.asks_open_ended and "dpo" in self.policies:
            raise ValueError("policies: a harvest asks verifiable prompts alone: write [grpo], or ask these alone too")
        if not self.has_warmup and not self.select and "grpo" in self.policies:
            raise ValueError("policies: grpo is the main grid's own policy unless a key of warmup differs")
        if self.dpo and "dpo" not in self.policies:
            raise ValueError("dpo has other values, but policies trains no dpo: add it or drop them")
        if "steps" in self.warmup:
            raise ValueError("warmup.steps: the values of K are the ablation's own steps: write them there")
        if "auto" in self.warmup:
            raise ValueError("warmup.auto: only the main warm-up can stop by itself: drop the key")
        if not self.steps:
            raise ValueError("steps is empty: list at least one K, or write all")
        if self.steps != "all" and repeated(self.steps):
            raise ValueError(f"steps: K values repeat: {self.steps}")
        if repeated(self.policies):
            raise ValueError(f"policies repeat: {self.policies}")
        return self

    @property
    def has_warmup(self) -> bool:
        """Whether it has a warm-up and harvests of its own, not only a DPO."""
        return bool(self.warmup) or self.reward is not None or self.asks_open_ended


class Baselines(Section):
    """Policies to compare with (paper, section 4.1)."""

    grpo_group_sizes: list[int] = key([2, 4], "GRPO alone at the largest K, for these G.", paper="2 and 4")
    grpo_steps: Literal["last", "all"] = key(
        "last",
        "all: GRPO alone is evaluated at every K, too, where the warm-up has that G and passes there anyway.",
        neutral="last",
    )
