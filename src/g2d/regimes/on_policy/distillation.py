"""On-policy distillation: a teacher scores every token of the policy's answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from g2d.memory.workload import Training
from g2d.policies.policy import Policy, load_model, load_tokenizer
from g2d.policies.settings import HubModel, LocalModel, lora_config, parameters
from g2d.regimes.offline.groups import ROLLOUTS_AT_ONCE, Group, RolloutsAtOnce, drawn_summary
from g2d.regimes.regime import OnlineEntry, Regime
from g2d.regimes.run.job import Trained, TrainingJob
from g2d.regimes.run.online import read_prompts
from g2d.regimes.run.training import OptimizerKeys, starting_model
from g2d.regimes.run.weights import save_trained
from g2d.settings import key

if TYPE_CHECKING:
    from g2d.regimes.on_policy.rollouts import OnPolicyRollouts


class Distillation(OptimizerKeys, OnlineEntry):
    """On-policy distillation: match a teacher's token distributions on the policy's own answers (arXiv 2306.13649)."""

    sync_every: ClassVar[int] = 1  # the policy generates
    margin: ClassVar[None] = None  # no reward is used

    regime: Literal["distillation"] = key(..., "Distil from a teacher on fresh rollouts.")
    teacher: str | Annotated[LocalModel | HubModel, Field(discriminator="source")] = key(
        ...,
        "A policy of the same model and seed, by its folder (grpo, dpo, an ablation's or entry's NAME, NAME/dpo, "
        "NAME/selected), or a model as in `models`.",
    )
    teacher_step: int | None = key(None, "K of a policy as teacher; null: the largest.", unit="steps or updates", ge=0)
    beta: float = key(
        1.0,
        "Divergence: reverse KL (1), forward KL (0), between them the generalised Jensen-Shannon divergence.",
        paper="0 to 1",
        ge=0,
        le=1,
    )
    temperature: float = key(1.0, "Temperature of sampling and of the loss's distributions.", paper="1.0", gt=0, le=5)
    max_completion_length: int = key(2048, "Token budget of a rollout.", unit="tokens", ge=1)
    batch_size: int = key(64, "Completions per batch with transformers.", ge=1)
    per_device_batch_size: RolloutsAtOnce = key("auto", ROLLOUTS_AT_ONCE, auto=8)
    learning_rate: float = key(1e-5, "Peak learning rate.", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.")

    @model_validator(mode="after")
    def _possible(self) -> Distillation:
        if self.teacher_step is not None and not isinstance(self.teacher, str):
            raise ValueError(f"teacher_step={self.teacher_step}: a model has no K: drop the key, or name a policy")
        if self.reward is not None:
            raise ValueError("reward: distillation does not use a reward: drop the key")
        return self

    def on_card(self, group_size: int, budget: int) -> Training:
        teacher = 0.0 if isinstance(self.teacher, str) else parameters(self.teacher)
        return self.on_policy_workload(1, reference=True, teacher=teacher)


def train_distillation(job: TrainingJob) -> Trained:
    from g2d.regimes.on_policy.rollouts import train_on_policy

    teacher, base = job.teacher, job.base
    assert teacher is not None
    if teacher.base != base.base and load_tokenizer(teacher).get_vocab() != load_tokenizer(base).get_vocab():
        raise ValueError(
            f"{teacher.base}: its vocabulary is not that of {base.base}, whose tokens it would score: choose a teacher "
            "with the same tokenizer"
        )
    return train_on_policy(job, _trainer)


def _trainer(job: TrainingJob, on_policy: OnPolicyRollouts, arguments: dict[str, Any], **parts: Any) -> Any:
    from trl import DistillationConfig

    from g2d.regimes.on_policy.distillation_trainer import DistillationOnGivenRollouts

    settings: Distillation = job.settings

    def updates(step: int) -> tuple[list[Group], int, dict[str, Any]]:
        rollouts = on_policy.rollouts_for(step, sync_weights)
        rows = zip(rollouts["problem_id"], rollouts["prompt_ids"], rollouts["completion_ids"], strict=True)
        sampled = [Group(name, tuple(asked.tolist()), (tuple(drawn.tolist()),), (), ()) for name, asked, drawn in rows]
        return sampled, len(sampled), drawn_summary(rollouts) | on_policy.metrics(step)

    def sync_weights(folder: Path) -> None:
        save_trained(trainer.accelerator.unwrap_model(trainer.model), folder)

    assert job.teacher is not None
    model = starting_model(job.base, job.start, job.lora)
    trainer = DistillationOnGivenRollouts(
        model=model,
        teacher_model=teacher_model(job.teacher, model.config.get_text_config().vocab_size),
        args=DistillationConfig(
            **arguments, beta=settings.beta, temperature=settings.temperature, shuffle_dataset=False
        ),
        updates=updates,
        peft_config=lora_config(job.lora) if job.start is None else None,
        **parts,
    )
    return trainer


def teacher_model(teacher: Policy, vocabulary: int) -> Any:
    """Load a teacher and cut its head to the policy's vocabulary.

    Further rows are padding: Qwen2.5's heads have 151,936 rows up to 3B and 152,064 from 7B on.
    """
    model: Any = load_model(teacher)
    rows = model.config.get_text_config().vocab_size
    if rows < vocabulary:
        raise ValueError(
            f"{teacher.base}: its head has {rows} rows, and the policy's {vocabulary}: choose a teacher whose head is "
            "as large"
        )
    if rows > vocabulary:
        model.resize_token_embeddings(vocabulary)
    return model


DISTILLATION = Regime(
    name="distillation",
    version=1,
    phase="online",
    consumes="prompts",
    settings=Distillation,
    read=read_prompts,
    train=train_distillation,
    label="on-policy distillation",
    card="{k} updates of on-policy distillation ({regime})",
    message="Distil into {wildcards.model} to K={wildcards.k} ({wildcards.regime}), "
    "G={wildcards.g}, seed {wildcards.seed}",
    auto_message="Distil into {wildcards.model} until H and mu decline, at most to K={wildcards.k} "
    "({wildcards.regime}), G={wildcards.g}, seed {wildcards.seed}",
    unit="updates of on-policy distillation",
)
