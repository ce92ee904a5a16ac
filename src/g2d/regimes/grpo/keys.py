"""Keys of `warmup`, and their conflicts: GRPO's objective, staleness of rollouts, weights of the engine's rollouts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Literal

from pydantic import ValidationInfo, field_validator, model_validator

from g2d.memory.workload import Training
from g2d.regimes.common.prompt_choice import OnlineKeys
from g2d.regimes.common.trainers import OptimizerKeys
from g2d.rewards.registry import RewardName
from g2d.settings import MistakeInKeyError, Rows, Section, Steps, key, repeated


class Objective(Section):
    """GRPO's objective besides `loss` and `beta`, as in TRL 1.16 (docs/off_policy.md)."""

    epsilon: float = key(0.2, "Lower clip of the ratio: 1 - epsilon.", gt=0, neutral=0.2)
    epsilon_high: float | None = key(
        None, "Upper clip of the ratio: 1 + epsilon_high (null: epsilon).", gt=0, neutral=None
    )
    importance_sampling: Literal["token", "sequence"] = key(
        "token", "Ratio per token, or its geometric mean per completion (GSPO).", neutral="token"
    )
    scale_rewards: Literal["group", "batch", "none"] = key(
        "group",
        "Divide advantages by the standard deviation of group or generation, or by 1.",
        neutral="group",
    )
    reward_std: Literal["unbiased", "population"] = key(
        "unbiased",
        "Standard deviation of rewards, from a sum S of squares: sqrt(S / (G - 1)) + 1e-4 (unbiased, TRL's), or "
        "sqrt(S / G + 1e-4) (population; 1.41 times the advantages at G=2).",
        neutral="unbiased",
    )
    bias_corrected_kl: bool = key(
        True, "Weight the KL term by the ratio (TRL's default); false: the estimator of GRPO's papers.", neutral=True
    )
    entropy_coefficient: float = key(
        0.0, "Weight of an entropy bonus: mean token entropy of a micro-batch.", ge=0, neutral=0.0
    )

    @property
    def objective_arguments(self) -> dict[str, object]:
        """Return these keys under TRL's names."""
        return {
            "epsilon": self.epsilon,
            "epsilon_high": self.epsilon_high,
            "scale_rewards": self.scale_rewards,
            "importance_sampling_level": self.importance_sampling,
            "use_bias_correction_kl": self.bias_corrected_kl,
            "entropy_coef": self.entropy_coefficient,
        }


class OffPolicy(Section):
    """Staleness of GRPO's rollouts and reference (arXiv 2505.22257, algorithm 1; docs/off_policy.md)."""

    updates_per_generation: int = key(1, "v: gradient steps per generation (docs/off_policy.md).", ge=1, neutral=1)
    iterations: int = key(1, "i: gradient steps on each rollout (docs/off_policy.md).", ge=1, neutral=1)
    ratio: Literal["sampler", "none"] = key(
        "sampler", "Clipped ratio to the sampling policy (sampler), or 1 (none).", neutral="sampler"
    )
    mask_uniform_groups: bool = key(
        False,
        "Also exclude groups with equal rewards from KL and entropy terms (arXiv 2505.22257, eq. 8).",
        neutral=False,
    )
    reference: Literal["base", "sync"] = key(
        "base", "Reference of the KL term: M0 (base), or the policy at the last synchronisation (sync).", neutral="base"
    )
    reference_every: int | Literal["pass"] = key(
        "pass",
        "Gradient steps between synchronisations of the reference, or a pass over the training prompts.",
        neutral="pass",
    )
    reset_optimizer: bool = key(False, "Reset AdamW's state when the reference is synchronised.", neutral=False)

    @property
    def updates_between_generations(self) -> int:
        return self.updates_per_generation * self.iterations


CORRECTION = ("correction", "correction_cap", "correction_floor")


class Mismatch(Section):
    """Importance weights (trainer's over sampler's probability) of tokens or completions (docs/off_policy.md)."""

    correction: Literal["sequence_mask", "sequence_truncate", "token_mask", "token_truncate"] = key(
        "sequence_mask",
        "Importance weights by completion or token: outside of correction_floor and correction_cap 0 (mask) or the "
        "bound (truncate).",
        neutral="sequence_mask",
    )
    correction_cap: float = key(3.0, "Largest weight.", ge=1, neutral=3.0)
    correction_floor: float | None = key(
        None, "Smallest weight; IcePop masks tokens on both sides.", gt=0, lt=1, neutral=None
    )

    @property
    def mismatch_arguments(self) -> dict[str, object]:
        """Return these keys under TRL's names."""
        return {
            "vllm_importance_sampling_mode": self.correction,
            "vllm_importance_sampling_clip_max": self.correction_cap,
            "vllm_importance_sampling_clip_min": self.correction_floor,
        }


AUTO = "auto"  # folder of policies with auto-stop


class AutoStop(Section):
    """Stop when H and mu of a small harvest have begun to decline (recipe step 3)."""

    every: int = key(50, "Gradient steps between probes.", unit="steps", paper="not stated", ge=1)
    prompts: int = key(
        200,  # docs/simulations.md has the effect of fewer
        "Prompts per probe: the first of the training set.",
        paper="not stated",
        ge=1,
    )
    patience: int = key(3, "Stop after this many probes with H and mu below their maxima.", paper="not stated", ge=1)

    @property
    def first_decline(self) -> int:
        # The first probe cannot decline.
        return (1 + self.patience) * self.every

    def too_late(self, unit: str, end: str) -> str:
        return (
            f"auto could never stop: a decline shows at {unit} {self.first_decline} at the earliest (1 + patience "
            f"probes), beyond {end}: lower auto.every or auto.patience"
        )


class Warmup(OptimizerKeys, Mismatch, OffPolicy, OnlineKeys, Objective):
    """Stage 1: K steps of GRPO with LoRA (paper, sections 2.1 and 4.1, appendix B)."""

    steps: list[Steps] = key(
        [0, 150, 300, 500, 700, 1000], "Grid of K; 0 is M0 itself.", paper="0, 150, 300, 500, 700, 1000"
    )
    group_sizes: list[int] = key([2], "Group sizes G to train and harvest.", paper="2")
    schedule: Literal["chain", "per_k"] = key(
        "chain", "chain: one training passes through every K; per_k: one training per K.", paper="not stated"
    )
    horizon: int | None = key(
        None, "Length of a chain's learning-rate schedule; null: the largest K.", unit="steps", ge=1
    )
    learning_rate: float = key(1e-5, "Peak learning rate.", paper="1e-5", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="cosine")
    temperature: float = key(0.8, "Sampling temperature.", paper="0.8", gt=0, le=5)
    max_completion_length: int = key(384, "Token budget of a completion.", unit="tokens", paper="384", ge=1)
    per_device_batch_size: Rows = key(
        "auto", "Completions per forward pass and device; auto: as many as fit on the GPU, else 4.", paper="4", auto=4
    )
    gradient_accumulation_steps: int = key(
        4, "Forward passes per gradient step; per_device_batch_size: auto counts as 4.", paper="4", ge=1
    )
    prompts_per_step: int | None = key(
        None,
        "Prompts per gradient step; null: per_device_batch_size x gradient_accumulation_steps / G.",
        unit="prompts",
        paper="8, by its GPU-hours: G=4 takes twice as long as G=2",
        ge=1,
        neutral=None,
    )
    beta: float = key(0.0, "KL coefficient.", paper="not stated; TRL's default", ge=0)
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo"] = key(
        "grpo", "TRL's loss_type; bnpo averages over the tokens of a micro-batch.", paper="grpo, by its date"
    )
    mask_truncated: bool = key(False, "Exclude truncated completions from the loss.", paper="no (section 5.1)")
    sync_every: int = key(1, "Gradient steps between synchronisations with vLLM.", ge=1)
    reward: RewardName | None = key(
        None,
        "Reward of the warm-up and its harvests: an entry of `rewards` or `{file: my_reward.py}`; null: correctness.",
        paper="correctness",
        neutral=None,
    )
    auto: AutoStop | None = key(None, "Also train g2d-auto, whose warm-up stops automatically.", paper="advised")

    @model_validator(mode="before")
    @classmethod
    def _whole_distribution(cls, values: object) -> object:
        for name in ("top_p", "top_k", "min_p"):
            if isinstance(values, dict) and name in values:
                raise MistakeInKeyError(
                    name,
                    "importance ratios need samples of the whole distribution: drop the key, or lower temperature "
                    "instead",
                )
        return values

    @field_validator("steps")
    @classmethod
    def _ascending(cls, steps: list[int]) -> list[int]:
        if not steps:
            raise ValueError("the grid of K is empty: list at least one K")
        if repeated(steps):
            raise ValueError(f"K values repeat: {steps}")
        return sorted(steps)

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> Warmup:
        name = "gradient_accumulation_steps"
        if name in (info.context or {}).get("changed", ()) and self.prompts_per_step is not None:
            raise MistakeInKeyError(
                name, f"follows from prompts_per_step={self.prompts_per_step}: change that, or set it to null too"
            )
        check_group_sizes(self, self.group_sizes, "group_sizes")
        for mistake in chain(self._check_effects(), self._check_steps(), self._check_auto()):
            raise ValueError(mistake)
        return self

    def _check_effects(self) -> Iterator[str]:
        table = (
            ({"reward_std"}, self.scale_rewards == "none", "scale_rewards: none"),
            ({"reference_every", "reset_optimizer"}, self.reference == "base", "reference: base"),
            ({*CORRECTION}, self.ratio == "none", "ratio: none"),
        )
        for names, without, other in table:
            if not without:
                continue
            for name in self.params(only=names):
                yield f"{name} has no effect with {other}: drop it, or change {other.partition(':')[0]}"

    def _check_steps(self) -> Iterator[str]:
        period = self.updates_between_generations
        generation = f"updates_per_generation x iterations={period}"
        if self.schedule == "chain" and self.steps[-1] > self.total_steps:
            yield f"K={self.steps[-1]} exceeds warmup.horizon={self.horizon}: raise the horizon or drop the K"
        for k in self.steps:
            if self.schedule == "chain" and k % self.sync_every:
                yield f"K={k} {self._no_sync}: change either, or use per_k"
        if period > 1 and self.sync_every > 1:
            yield f"sync_every={self.sync_every} and {generation} refresh rollouts at different steps: set one to 1"
        if self.reference == "sync" and self.beta == 0:
            yield "reference: sync without a KL term changes nothing: set beta above 0, or reference to base"
        if self.reference_every != "pass" and (self.reference_every < 1 or self.reference_every % period):
            yield f"reference_every={self.reference_every} is no multiple of {generation}: change either"
        # A training can only end or resume when the rollouts of a generation are used up.
        ends = [(f"K={k}", k) for k in self.steps]
        if self.horizon is not None:
            ends.append((f"horizon={self.horizon}", self.horizon))
        if self.auto is not None:
            ends.append((f"auto.every={self.auto.every}", self.auto.every))
        for name, step in ends:
            if step % period:
                yield f"{name} is no multiple of {generation}, so rollouts would be left over: change either"

    @property
    def _no_sync(self) -> str:
        return f"is no multiple of warmup.sync_every={self.sync_every}, so a chain cannot continue there"

    def _check_auto(self) -> Iterator[str]:
        if self.auto is None:
            return
        if self.schedule != "chain":
            yield "auto continues one training from probe to probe: set schedule to chain, or auto to null"
        if self.reward is not None:
            yield "auto stops by the share of right rollouts, which reward does not train: set one of them to null"
        if self.auto.every % self.sync_every:
            yield f"auto.every={self.auto.every} {self._no_sync}: change either"
        if self.auto.first_decline > self.total_steps:
            yield f"{self.auto.too_late('step', f'the {self.total_steps} steps')}, or raise the horizon"

    @property
    def total_steps(self) -> int:
        return self.horizon if self.horizon is not None else max(self.steps)

    def schedule_length(self, k: int) -> int:
        return self.total_steps if self.schedule == "chain" else k

    def at(self, group_size: int, k: int, *, stops: bool = False) -> Warmup:
        """Return the keys of one policy's training.

        A step has the same completions, whichever of `prompts_per_step` and `gradient_accumulation_steps` was given.
        The name of the reward is left out: it is resolved elsewhere.
        """
        return self.model_copy(
            update={
                "steps": [k],
                "group_sizes": [group_size],
                "horizon": self.schedule_length(k),
                "per_device_batch_size": self.rows_per_pass(group_size),
                "gradient_accumulation_steps": self.accumulation_steps(group_size),
                "prompts_per_step": self.prompts_each_step(group_size),
                "reward": None,
                "auto": self.auto if stops else None,
            }
        )

    def completions_per_step(self, group_size: int) -> int:
        if self.prompts_per_step is not None:
            return self.prompts_per_step * group_size
        return self.number("per_device_batch_size") * self.gradient_accumulation_steps

    def prompts_each_step(self, group_size: int) -> int:
        return self.completions_per_step(group_size) // group_size

    def rows_per_pass(self, group_size: int) -> int:
        rows = self.number("per_device_batch_size")
        if self.per_device_batch_size != "auto":
            return rows
        return math.gcd(rows, self.completions_per_step(group_size))

    @property
    def depends_on_passes(self) -> bool:
        """Whether the loss has means over the tokens of a pass."""
        return self.loss == "bnpo" or self.entropy_coefficient > 0

    def workload(self, group_size: int) -> Training:
        drawn = self.completions_per_generation(group_size)
        free = self.per_device_batch_size == "auto" and not self.depends_on_passes
        return Training(
            budget=self.max_completion_length,
            rows=self.rows_per_pass(group_size),
            reference_model=self.beta > 0,
            adapters=2 if self.reference == "sync" else 1,
            at_once=drawn,
            batch=drawn,
            completions=max(self.steps) * self.completions_per_step(group_size) // self.iterations,
            update=self.completions_per_step(group_size) if free else None,
            divisible=not self.depends_on_passes,
            group=group_size,
        )

    def completions_per_generation(self, group_size: int) -> int:
        return self.updates_per_generation * self.completions_per_step(group_size)

    def prompts_asked(self, steps: int, group_size: int) -> int:
        return steps // self.iterations * self.prompts_each_step(group_size)

    def swaps_reference(self, step: int, group_size: int, n_prompts: int) -> bool:
        """Return whether the policy becomes the reference after a step, counted from 1.

        `pass`: at the end of the generation in which a pass over `n_prompts` ends.
        """
        period = self.updates_between_generations
        if self.reference == "base" or step % period:
            return False
        if self.reference_every != "pass":
            return step % self.reference_every == 0
        passes_before = self.prompts_asked(step - period, group_size) // n_prompts
        return self.prompts_asked(step, group_size) // n_prompts > passes_before

    @property
    def continued_every(self) -> int:
        """Steps between checkpoints from which a training can resume bit for bit."""
        return self.sync_every * self.updates_between_generations

    def accumulation_steps(self, group_size: int) -> int:
        return self.completions_per_step(group_size) // self.rows_per_pass(group_size)


def check_group_sizes(warmup: Warmup, group_sizes: list[int], where: str) -> None:
    """Raise a ValueError for group sizes that do not divide a step's completions."""
    if repeated(group_sizes):
        raise ValueError(f"{where}: group sizes repeat: {group_sizes}")
    for size in group_sizes:
        completions = warmup.completions_per_step(size)
        if size < 2 or completions % size:
            raise ValueError(
                f"{where}: G={size} must be at least 2 and divide the {completions} completions of a step "
                "(per_device_batch_size x gradient_accumulation_steps)"
            )
        if completions % warmup.rows_per_pass(size):
            raise ValueError(
                f"{where}: G={size} x warmup.prompts_per_step={warmup.prompts_per_step} are {completions} completions, "
                f"no multiple of warmup.per_device_batch_size={warmup.per_device_batch_size}: change one of them"
            )
