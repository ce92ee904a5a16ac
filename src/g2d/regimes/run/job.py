"""Input and output of a training, common to all regimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy, as_json
from g2d.policies.settings import Lora
from g2d.problems.prompts import Prompt
from g2d.regimes.run.checkpoints import Checkpointing
from g2d.regimes.run.prompts import VERIFIABLE, PromptMix
from g2d.regimes.run.tracking import finish_tracking
from g2d.rewards.catalogue import TRUTH
from g2d.rollouts.settings import EngineSettings, Harvest
from g2d.settings import Section

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TrainingJob:
    """One training. An interrupted attempt leaves checkpoints in `work`, from which the next attempt resumes."""

    base: Policy  # M0
    data: Any  # result of `Regime.read`: problems to ask, or training data from a harvest
    settings: Any  # settings of the regime
    _: KW_ONLY
    seed: int
    work: Path  # folder to train in, kept between attempts
    lora: Lora
    start: Policy | None = None  # policy to continue; None for M0
    teacher: Policy | None = None  # policy to imitate, for distillation
    gradient_checkpointing: bool | Literal["auto"] = "auto"  # auto: on a GPU, if activations do not fit
    shared_prompts: bool | Literal["auto"] = "auto"  # `training.shared_prompts`, followed by `training.precision`
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    checkpointing: Checkpointing = field(default_factory=Checkpointing)  # how often to save
    tracking: Mapping[str, Any] | None = None  # from `tracking_arguments`; None: no reporting
    # Meter of the job: counts the tokens of online steps; checkpoints record its cost.
    meter: Meter = field(default_factory=lambda: Meter("training", "training"))
    version: int = 0  # version of the stage; attempts of other versions are not resumed

    # For online trainings:
    k: int = 0  # step to reach, counted from M0
    group_size: int = 0  # G, completions per prompt
    prompt: Prompt = field(default_factory=Prompt)
    prompt_mix: PromptMix = VERIFIABLE  # kinds of problems to ask, and their shares
    reward: Section = TRUTH  # reward of completions
    engine: EngineSettings | None = None  # engine for generation; None: transformers
    resume_from: Path | None = None  # checkpoint of a smaller K of the same trajectory
    replayed_harvest: Path | None = None  # rollouts of a harvest whose successes are replayed

    # For trainings that stop automatically:
    harvest: Harvest = field(default_factory=Harvest)  # sampling of its probes
    policy_id: str = ""  # recorded in the rows of its probes
    workers: int = 1  # verifier processes

    @property
    def identity(self) -> dict[str, Any]:
        """Values that every training depends on, as JSON."""
        return {"version": self.version, "base": as_json(self.base), "lora": self.lora.params(), "seed": self.seed}


@dataclass(frozen=True)
class Trained:
    """Result of a training, in addition to the files in its work folder."""

    log: list[dict[str, Any]]  # trainer's log, one row per gradient step, including those before `resume_from`
    found: Mapping[str, Any] = field(default_factory=dict)  # values for the record of the policy
    k: int | None = None  # steps of the policy, if the training stopped automatically
    probes: pd.DataFrame | None = None  # probes, if the training stops automatically


def train_on(train: Callable[[TrainingJob], Trained], job: TrainingJob, *, meter: Meter) -> Trained:
    """Train with a meter and finish tracking; called in each process of the training."""
    try:
        return train(replace(job, meter=meter))
    finally:
        finish_tracking()
