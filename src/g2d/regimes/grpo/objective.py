"""Keys of `warmup`: GRPO's objective, weights of right and wrong answers, and staleness of rollouts."""

from __future__ import annotations

from typing import Any, Literal

from g2d.regimes.grpo.replay import Replay
from g2d.settings import Section, key


class Objective(Section):
    """GRPO's objective besides `loss` and `beta`, as in TRL 1.16 (docs/off_policy.md)."""

    epsilon: float = key(0.2, "Lower clip of the ratio: 1 - epsilon.", gt=0, neutral=0.2)
    epsilon_high: float | None = key(
        None,
        "Upper clip of the ratio: 1 + epsilon_high (null: epsilon); with loss: cispo, epsilon_high itself.",
        gt=0,
        neutral=None,
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

    top_entropy_quantile: float = key(
        1.0,
        "Share of a micro-batch's tokens, by largest entropy, in the policy loss (arXiv 2506.01939); the KL "
        "term uses all.",
        gt=0,
        le=1,
        neutral=1.0,
    )
    off_policy_mask_threshold: float | None = key(
        None,
        "Mask completions with a negative advantage and a mean log-ratio of sampling policy to policy above "
        "this (arXiv 2512.02556, eq. 9); null: none.",
        unit="nats per token",
        gt=0,
        neutral=None,
    )
    negative_veto: float | None = key(
        None,
        "In completions with a negative advantage, mask the first token whose ratio exceeds this and all after it "
        "(arXiv 2605.17570); null: none.",
        gt=1,
        neutral=None,
    )

    @property
    def objective_arguments(self) -> dict[str, Any]:
        named_alike = {"epsilon", "epsilon_high", "scale_rewards", "top_entropy_quantile", "off_policy_mask_threshold"}
        return self.model_dump(include=named_alike) | {
            "importance_sampling_level": self.importance_sampling,
            "use_bias_correction_kl": self.bias_corrected_kl,
            "entropy_coef": self.entropy_coefficient,
            "sapo_temperature_neg": 1.05,  # arXiv 2511.20347; TRL's defaults
            "sapo_temperature_pos": 1.0,
            "vespo_k_pos": 2.0,  # arXiv 2602.10693; TRL's defaults
            "vespo_lambda_pos": 3.0,
            "vespo_k_neg": 3.0,
            "vespo_lambda_neg": 2.0,
            # Makes TRL call `Grpo.get_off_policy_mask`.
            **({} if self.negative_veto is None else {"off_policy_mask_threshold": self.negative_veto}),
        }


class Signs(Section):
    """Weights of right and wrong answers in the policy loss (docs/regimes.md)."""

    advantages: Literal["group", "sign"] = key(
        "group",
        "group: reward minus the group's mean, see scale_rewards; sign: 1 for a right answer, else -1 (arXiv "
        "2506.01347).",
        neutral="group",
    )
    positive_weight: float = key(
        1.0,
        "Factor of positive advantages; 0: only wrong answers (NSR); 0.1 with advantages: sign: W-REINFORCE.",
        ge=0,
        neutral=1.0,
    )
    negative_weight: float = key(
        1.0,
        "Factor of negative advantages; 0: only right answers (PSR; RAFT++ in arXiv 2504.11343).",
        ge=0,
        neutral=1.0,
    )


class OffPolicy(Section):
    """Staleness of GRPO's rollouts and reference (arXiv 2505.22257, algorithm 1; docs/off_policy.md)."""

    updates_per_generation: int = key(1, "v: gradient steps per generation (docs/off_policy.md).", ge=1, neutral=1)
    lag: int = key(0, "Sample from the policy of this many steps ago.", unit="steps", ge=0, neutral=0)
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
    replay: Replay | None = key(None, "Also train on earlier completions.", neutral=None)

    @property
    def has_buffer(self) -> bool:
        """Whether groups are replayed, which need importance weights."""
        return self.replay is not None and self.replay.buffer is not None

    @property
    def updates_between_generations(self) -> int:
        return self.updates_per_generation * self.iterations

    @property
    def trains_again(self) -> bool:
        return self.iterations > 1 or self.replay is not None


CORRECTION = ("correction", "correction_cap", "m2_threshold")


class Mismatch(Section):
    """Importance weights (trainer's over sampler's probability) of tokens or completions (docs/off_policy.md)."""

    correction: Literal["sequence_mask", "sequence_truncate", "token_mask", "token_truncate", "m2"] = key(
        "sequence_mask",
        "Importance weights by completion or token: above correction_cap 0 (mask) or the cap (truncate). m2: mask "
        "the most extreme tokens (M2PO, arXiv 2510.01161).",
        neutral="sequence_mask",
    )
    correction_cap: float = key(3.0, "Largest weight.", ge=1, neutral=3.0)
    m2_threshold: float = key(
        0.04,
        "With correction: m2, largest mean square of unmasked log-weights in an update.",
        paper="0.04 in AReaL's example",
        gt=0,
        neutral=0.04,
    )
    float32_logits: bool = key(False, "Compute logits in float32 (TRL's cast_lm_head_to_fp32).", neutral=False)

    @property
    def weighs_tokens(self) -> bool:
        return self.correction.startswith("token")

    @property
    def correction_keys(self) -> dict[str, Any]:
        return self.params(only={*CORRECTION})

    @property
    def mismatch_arguments(self) -> dict[str, Any]:
        """Return these keys under TRL's names. TRL has no m2, so it computes uncapped token weights."""
        m2 = self.correction == "m2"
        return {
            "vllm_importance_sampling_mode": "token_mask" if m2 else self.correction,
            "vllm_importance_sampling_clip_max": None if m2 else self.correction_cap,
            "cast_lm_head_to_fp32": self.float32_logits,
        }
