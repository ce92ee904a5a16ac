"""What a training is given, whatever its regime, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy, as_json
from g2d.policies.settings import Lora
from g2d.problems.prompts import Prompt
from g2d.regimes.checkpoints import Checkpointing
from g2d.regimes.prompt_choice import VERIFIABLE, PromptMix
from g2d.regimes.tracking import finish_tracking
from g2d.rewards.catalogue import TRUTH
from g2d.rollouts.settings import EngineSettings, Harvest
from g2d.settings import Section

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TrainingJob:
    """One training. An attempt that was stopped leaves checkpoints in `work`, and the next one goes on from them."""

    base: Policy  # M0
    data: Any  # what `Regime.read` returns: the problems to ask, or what is learnt from a harvest
    settings: Any  # of the regime
    _: KW_ONLY
    seed: int
    work: Path  # a folder to train in, kept between attempts
    lora: Lora
    start: Policy | None = None  # the policy that is trained on; None for M0
    teacher: Policy | None = None  # the policy that is imitated, of a regime that has one
    gradient_checkpointing: bool | Literal["auto"] = "auto"  # auto: on a GPU, where activations do not fit
    shared_prompts: bool | Literal["auto"] = "auto"  # as `training.shared_prompts`, and `training.precision`
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    checkpointing: Checkpointing = field(default_factory=Checkpointing)  # how often to save on the way
    tracking: Mapping[str, Any] | None = None  # from `tracking_arguments`; nothing is reported if None
    # Of the job that this is: the tokens of online steps are added, and checkpoints keep its bill.
    meter: Meter = field(default_factory=lambda: Meter("training", "training"))
    version: int = 0  # of the stage; an attempt of another version is not continued

    # Of an online training:
    k: int = 0  # the step to reach, counted from M0
    group_size: int = 0  # G, completions per prompt
    prompt: Prompt = field(default_factory=Prompt)
    prompt_mix: PromptMix = VERIFIABLE  # which of the problems are asked, and how many of each kind
    reward: Section = TRUTH  # what a completion is worth
    engine: EngineSettings | None = None  # what generates; transformers if None
    resume_from: Path | None = None  # checkpoint of a smaller K of the same trajectory
    replayed_harvest: Path | None = None  # rollouts of a harvest whose successes are replayed

    # Of one that stops by itself:
    harvest: Harvest = field(default_factory=Harvest)  # how its probes are drawn
    policy_id: str = ""  # in the rows of its probes
    workers: int = 1  # processes that verify

    @property
    def identity(self) -> dict[str, Any]:
        """What every training depends on, as JSON."""
        return {"version": self.version, "base": as_json(self.base), "lora": self.lora.params(), "seed": self.seed}


@dataclass(frozen=True)
class Trained:
    """What a training leaves beside the files in its work folder."""

    log: list[dict[str, Any]]  # the trainer's, one row per gradient step, those before `resume_from` included
    found: Mapping[str, Any] = field(default_factory=dict)  # for the record of the policy
    k: int | None = None  # steps behind the policy, where the training stopped by itself
    probes: pd.DataFrame | None = None  # of one that stopped by itself


def train_on(train: Callable[[TrainingJob], Trained], job: TrainingJob, *, meter: Meter) -> Trained:
    """Train with a meter and end what the training reports to: what each of its processes calls."""
    try:
        return train(replace(job, meter=meter))
    finally:
        finish_tracking()
