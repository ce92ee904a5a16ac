from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from g2d.jobs.cost import Meter
from g2d.policies.model_keys import Lora
from g2d.policies.record import PolicyRecord, as_json
from g2d.problems.prompts import Prompt
from g2d.regimes.run.checkpoints import Checkpointing
from g2d.regimes.run.prompt_choice import VERIFIABLE, PromptMix
from g2d.regimes.run.trainers import LogRow
from g2d.rewards.registry import TRUTH
from g2d.rollouts.rollout_keys import EngineSettings, HarvestSettings
from g2d.settings import Section
from g2d.verifier.verifier_keys import PythonVerifier

if TYPE_CHECKING:
    import pandas as pd


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
    checkpointing: Checkpointing = field(default_factory=Checkpointing)
    tracking: Mapping[str, str] | None = None
    meter: Meter = field(default_factory=lambda: Meter("training", "training"))
    version: int = 0  # attempts of other versions are not resumed

    k: int = 0  # step to reach, counted from M0
    group_size: int = 0
    prompt: Prompt = field(default_factory=Prompt)
    prompt_mix: PromptMix = VERIFIABLE
    reward: Section = TRUTH
    verifier: PythonVerifier | None = None  # None: Math-Verify
    engine: EngineSettings = field(default_factory=EngineSettings)
    resume_from: Path | None = None  # checkpoint of a smaller K of the same trajectory

    harvest: HarvestSettings = field(default_factory=HarvestSettings)
    policy_id: str = ""
    workers: int = 1  # verifier processes

    @property
    def identity(self) -> dict[str, object]:
        return {"version": self.version, "base": as_json(self.base), "lora": self.lora.params(), "seed": self.seed}


@dataclass(frozen=True)
class Trained:
    log: list[LogRow]  # row per gradient step, including those before `resume_from`
    recorded: Mapping[str, object] = field(default_factory=dict)  # entries for the record of the policy
    k: int | None = None  # if training stopped automatically
    probes: pd.DataFrame | None = None
