"""Keys of `warmup`: GRPO's objective, staleness of rollouts, and weights of the engine's rollouts."""

from __future__ import annotations

from typing import Any, Literal

from g2d.settings import Section, key


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
    deviation: Literal["unbiased", "population"] = key(
        "unbiased",
        "Standard deviation from a sum S of squares: sqrt(S / (G - 1)) + 1e-4 (unbiased, TRL's), or "
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


CORRECTION = ("correction", "correction_cap")


class Mismatch(Section):
    """Importance weights (trainer's over sampler's probability) of tokens or completions (docs/off_policy.md)."""

    correction: Literal["sequence_mask", "sequence_truncate", "token_mask", "token_truncate"] = key(
        "sequence_mask",
        "Importance weights by completion or token: above correction_cap 0 (mask) or the cap (truncate).",
        neutral="sequence_mask",
    )
    correction_cap: float = key(3.0, "Largest weight.", ge=1, neutral=3.0)
    float32_logits: bool = key(False, "Compute logits in float32 (TRL's cast_lm_head_to_fp32).", neutral=False)

    @property
    def weighs_tokens(self) -> bool:
        return self.correction.startswith("token")

    @property
    def correction_keys(self) -> dict[str, Any]:
        return self.params(only={*CORRECTION})

    @property
    def mismatch_arguments(self) -> dict[str, object]:
        """Return these keys under TRL's names."""
        return {
            "vllm_importance_sampling_mode": self.correction,
            "vllm_importance_sampling_clip_max": self.correction_cap,
            "cast_lm_head_to_fp32": self.float32_logits,
        }
