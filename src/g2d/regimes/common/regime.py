"""A regime is a way to train a policy: its declaration, its training's job and result, and base classes of its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from pydantic import field_validator, model_validator

from g2d.jobs.cost import Meter
from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import PassLimit, Training
from g2d.policies.model_keys import Lora
from g2d.policies.record import PolicyRecord
from g2d.problems.prompts import Prompt
from g2d.regimes.common.checkpoints import Checkpointing
from g2d.regimes.common.prompt_choice import VERIFIABLE, OnlineKeys, PromptMix
from g2d.regimes.common.trainers import LogRow
from g2d.rewards.registry import TRUTH, RewardName
from g2d.rollouts.rollout_keys import EngineSettings, HarvestSettings
from g2d.settings import Name, Rows, Section, Steps, key, repeated
from g2d.verifier.verifier_keys import PythonVerifier

if TYPE_CHECKING:
    import pandas as pd

# K steps on fresh rollouts, or a training on the harvest of pi_K.
Phase = Literal["online", "offline"]


@dataclass(frozen=True, slots=True)
class Regime:
    name: str  # used in the configuration, rules (`train_{name}`) and tables
    version: int  # raise it if results change
    phase: Phase
    settings: type[Section]
    read: Callable[[TrainingJob[Any, None], Values], Any]
    train: Callable[[TrainingJob[Any, Any]], Trained]
    label: str  # in legends and cards
    section: str = ""  # instead of entries in `regimes`

    @property
    def settings_name(self) -> str:
        """Name of its keys in the settings of a training, such as warmup or rft."""
        return self.section or self.name


Settings_co = TypeVar("Settings_co", covariant=True)  # section of the regime
Data_co = TypeVar("Data_co", covariant=True)  # result of `Regime.read`


@dataclass(frozen=True)
class TrainingJob(Generic[Settings_co, Data_co]):
    """One training: policies, data, settings, and the step to reach."""

    base: PolicyRecord  # M0
    data: Data_co
    settings: Settings_co
    _: KW_ONLY
    seed: int
    work: Path  # has the checkpoints of earlier attempts
    lora: Lora
    start: PolicyRecord | None = None  # None: M0
    gradient_checkpointing: bool | Literal["auto"] = "auto"  # auto: on a GPU, if activations do not fit
    shared_prompts: bool | Literal["auto"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    passes: PassLimit = field(default_factory=PassLimit)
    checkpointing: Checkpointing = field(default_factory=Checkpointing)
    tracking: Mapping[str, str] | None = None
    meter: Meter = field(default_factory=lambda: Meter("training", "training"))
    key: Mapping[str, object] = field(default_factory=dict)  # `job_key`

    k: int = 0  # last step of this training; offline: steps before the harvest
    group_size: int = 0
    prompt: Prompt = field(default_factory=Prompt)
    prompt_mix: PromptMix = VERIFIABLE
    reward: Section = TRUTH
    verifier: PythonVerifier | None = None  # None: Math-Verify
    engine: EngineSettings = field(default_factory=EngineSettings)
    resume_from: Path | None = None  # checkpoint of the same training at a smaller K

    harvest: HarvestSettings = field(default_factory=HarvestSettings)
    policy_id: str = ""
    workers: int = 1  # verifier processes


@dataclass(frozen=True)
class Trained:
    log: list[LogRow]  # row per gradient step, including those before `resume_from`
    statistics: Mapping[str, object] = field(default_factory=dict)  # for the record of the policy
    k: int | None = None  # if training stopped automatically
    probes: pd.DataFrame | None = None


class Entry(Section):
    """Base class of the entries of `regimes`."""

    if TYPE_CHECKING:
        regime: str  # each entry declares it with its name


class OfflineKeys(Section):
    """Keys of all trainings on a harvest, and what they need on a card."""

    epochs: int = key(3, "Passes over the pairs or completions.", paper="3", ge=1)
    learning_rate: float = key(5e-5, "Peak learning rate.", paper="5e-5", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="not stated")
    per_device_batch_size: Rows = key(
        "auto",
        "Pairs or completions per forward pass and device; auto: as many as fit on the GPU, else 4.",
        paper="not stated",
        auto=4,
    )
    gradient_accumulation_steps: int = key(
        4, "Forward passes per gradient step; per_device_batch_size: auto counts as 4.", paper="not stated", ge=1
    )
    start: Literal["base", "warmup"] = key("base", "Start from M0, or from pi_K.", paper="base")
    max_steps: int | None = key(None, "Gradient steps, instead of `epochs`.", unit="steps", ge=1)

    @property
    def rows_per_step(self) -> int:
        return self.number("per_device_batch_size") * self.gradient_accumulation_steps

    def at(self, k: int) -> Self:
        """Return the keys of one policy's training."""
        return self

    def sequences(self, samples: int, pairable: float) -> float:
        """Return approximate sequences per prompt and epoch; `pairable` is a share of prompts."""
        return pairable

    def workload(self, budget: int) -> Training:
        """Return the workload on a card, with completions of at most `budget` tokens."""
        return Training(
            budget=budget,
            rows=self.number("per_device_batch_size"),
            update=self.rows_per_step if self.per_device_batch_size == "auto" else None,
            passes="by_length",
        )


class OfflineEntry(OfflineKeys, Entry):
    """Policies trained offline on the harvest of pi_K, one per K."""

    steps: Literal["all"] | list[Steps] = key("all", "K to train at; all: the grid's.")

    def at(self, k: int) -> Self:
        return self.model_copy(update={"steps": [k]})

    @field_validator("steps")
    @classmethod
    def _distinct(cls, steps: list[int] | Literal["all"]) -> list[int] | Literal["all"]:
        if steps == "all":
            return steps
        if not steps or repeated(steps):
            raise ValueError(f"list every K once, at least one, or write all: {steps}")
        return sorted(steps)


class OnlineEntry(PromptMix, OnlineKeys, Entry):
    """One training on fresh rollouts that passes through every K; K counts its updates."""

    if TYPE_CHECKING:
        beta: float  # each entry declares it with its default
    steps: list[Steps] = key(..., "K in updates, to evaluate.")
    horizon: int | None = key(None, "Length of the learning-rate schedule; null: the largest K.", unit="updates", ge=1)
    responses: int = key(8, "G: rollouts per prompt.", paper="8 for GRPO, else not stated", ge=2)
    prompts_per_update: int = key(16, "Prompts per update.", unit="prompts", paper="64", ge=1)
    start: Name = key(
        "base", "M0 (base), a warm-up policy (warmup), or an online entry's policy.", paper="M0", neutral="base"
    )
    start_step: int | None = key(
        None, "K of the policy to start from, unless start: base.", unit="steps or updates", ge=1, neutral=None
    )
    reward: RewardName | None = key(
        None,
        "Reward of verifiable prompts: an entry of `rewards` or `{file: my_reward.py}`; null: that of `warmup`.",
        neutral=None,
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.steps or repeated(self.steps) or 0 in self.steps:
            raise ValueError(f"steps: list every K once, at least one, without 0 (M0): {self.steps}")
        if self.steps != sorted(self.steps):
            raise ValueError(f"steps: list the values of K in ascending order: {self.steps}")
        if max(self.steps) > self.total_steps:
            raise ValueError(f"K={max(self.steps)} exceeds horizon={self.horizon}: raise the horizon or drop the K")
        self.open_ended_of(self.prompts_per_update)
        if self.prompts == "mixed" and self.retire:
            raise ValueError("prompts: mixed: retire would change the proportions: drop it")
        if self.prompts == "open_ended" and self.reward is not None:
            raise ValueError("reward: judges verifiable prompts, but prompts: open_ended has none: drop it")
        if self.start == "base" and self.start_step is not None:
            raise ValueError(f"start_step={self.start_step}: M0 has no K: drop the key, or name a start")
        if self.start != "base" and self.start_step is None:
            raise ValueError(f"start_step: missing: name the K of {self.start} to start from")
        return self

    @property
    def total_steps(self) -> int:
        return self.horizon if self.horizon is not None else max(self.steps)

    def at(self, k: int) -> Self:
        """Return the keys of one policy's training, without the name of its reward, which is resolved elsewhere."""
        return self.model_copy(update={"steps": [k], "horizon": self.total_steps, "reward": None})

    def completions_per_prompt(self, group_size: int) -> int:
        return self.responses

    def prompts_each_step(self, group_size: int) -> int:
        return self.prompts_per_update

    def mistakes(self, model: str, n_problems: int, dropout: float) -> Iterator[str]:
        """Yield conflicts with a model's training set or adapter: key and fix."""
        if self.prompts_per_update > n_problems:
            yield (
                f"prompts_per_update={self.prompts_per_update} exceeds training_set.n={n_problems} of {model}: lower "
                "it, or raise n"
            )
