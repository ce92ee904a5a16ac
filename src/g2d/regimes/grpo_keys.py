"""Keys of `warmup`: GRPO's objective, weights of right and wrong answers, and staleness of rollouts."""

from __future__ import annotations

from typing import Any, Literal

from g2d.regimes.replay import Replay
from g2d.settings import Section, key


class Objective(Section):
    """GRPO's objective beyond `loss` and `beta`, as in TRL 1.16 (docs/off_policy.md lists the origin of each key)."""

    epsilon: float = key(0.2, "Clip of the ratio: from 1 - epsilon on.", gt=0, neutral=0.2)
    epsilon_high: float | None = key(
        None,
        "Clip of the ratio: up to 1 + epsilon_high; null: epsilon. With loss: cispo the largest ratio itself.",
        gt=0,
        neutral=None,
    )
    importance_sampling: Literal["token", "sequence"] = key(
        "token", "The ratio of every token, or the geometric mean of a completion's (GSPO).", neutral="token"
    )
    scale_rewards: Literal["group", "batch", "none"] = key(
        "group",
        "Standard deviation that advantages are divided by: of the group, of all rewards of a generation, or 1.",
        neutral="group",
    )
    deviation: Literal["unbiased", "population"] = key(
        "unbiased",
        "What scale_rewards divides by, for a sum S of G squares: unbiased is TRL's sqrt(S / (G - 1)) + 1e-4; "
        "population is sqrt(S / G + 1e-4), by which advantages are larger beside beta's KL term, 1.41 times at G=2.",
        neutral="unbiased",
    )
    bias_corrected_kl: bool = key(
        True,
        "Weight the KL term by the ratio (TRL's default); false: the plain estimator of GRPO's papers.",
        neutral=True,
    )
    entropy_coefficient: float = key(
        0.0,
        "Weight of the mean entropy of the next token over a micro-batch, which is rewarded.",
        ge=0,
        neutral=0.0,
    )

    top_entropy_quantile: float = key(
        1.0,
        "Share of the tokens of a micro-batch that the policy's loss is over, those with the largest entropy (arXiv "
        "2506.01939); the KL term is over all.",
        gt=0,
        le=1,
        neutral=1.0,
    )
    off_policy_mask_threshold: float | None = key(
        None,
        "Leave completions out of the policy's loss whose advantage is negative and whose tokens were likelier under "
        "the policy that sampled, by more than this on average (arXiv 2512.02556, eq. 9); null: none.",
        unit="nats per token",
        gt=0,
        neutral=None,
    )

    @property
    def objective_arguments(self) -> dict[str, Any]:
        """These keys under TRL's names."""
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
        }


class Signs(Section):
    """Weights of right and wrong answers in the policy's loss: signed reinforcement (docs/regimes.md)."""

    advantages: Literal["group", "sign"] = key(
        "group",
        "group: the reward less the mean of its group, over scale_rewards; sign: 1 for a right answer and -1 for a "
        "wrong one, whatever the others of its group are (arXiv 2506.01347).",
        neutral="group",
    )
    positive_weight: float = key(
        1.0,
        "Factor of the advantages above 0: 0 trains on wrong answers alone (NSR), 0.1 with advantages: sign is "
        "W-REINFORCE.",
        ge=0,
        neutral=1.0,
    )
    negative_weight: float = key(
        1.0,
        "Factor of the advantages below 0: 0 trains on right answers alone (PSR; RAFT++ in arXiv 2504.11343).",
        ge=0,
        neutral=1.0,
    )


class OffPolicy(Section):
    """Staleness of GRPO's rollouts and reference (arXiv 2505.22257, algorithm 1; docs/off_policy.md)."""

    updates_per_generation: int = key(
        1,
        "Gradient steps on the rollouts of one policy, fresh prompts in each (v in docs/off_policy.md); 1: on-policy.",
        ge=1,
        neutral=1,
    )
    lag: int = key(
        0,
        "The policy of so many gradient steps ago draws the rollouts of every step, as in an asynchronous trainer, and "
        "`correction` weighs them; 0: on-policy.",
        unit="steps",
        ge=0,
        neutral=0,
    )
    iterations: int = key(
        1,
        "Gradient steps on every rollout (i in docs/off_policy.md, num_iterations of TRL); asks 1/i of the prompts.",
        ge=1,
        neutral=1,
    )
    ratio: Literal["sampler", "none"] = key(
        "sampler",
        "sampler: the policy over the one that sampled, clipped; none: 1, stale rollouts are taken as fresh ones.",
        neutral="sampler",
    )
    mask_uniform_groups: bool = key(
        False,
        "Leave groups whose rewards are all equal out of KL and entropy terms too (arXiv 2505.22257, eq. 8); their "
        "advantage is 0 in any case.",
        neutral=False,
    )
    reference: Literal["base", "sync"] = key(
        "base", "Of the KL term: M0, or the policy itself as it was at the last swap; M0 before.", neutral="base"
    )
    reference_every: int | Literal["pass"] = key(
        "pass",
        "Gradient steps between two swaps; pass: when all training prompts have been asked once more.",
        neutral="pass",
    )
    reset_optimizer: bool = key(False, "Forget AdamW's averages at a swap of the reference.", neutral=False)
    replay: Replay | None = key(
        None, "Train on completions that were drawn before, too; null: on fresh ones alone.", neutral=None
    )

    @property
    def has_buffer(self) -> bool:
        """Whether groups of earlier updates are replayed, whose completions need importance weights."""
        return self.replay is not None and self.replay.buffer is not None

    @property
    def updates_between_generations(self) -> int:
        """Gradient steps per generation: v x i."""
        return self.updates_per_generation * self.iterations

    @property
    def trains_again(self) -> bool:
        """Whether fewer completions are sampled than trained on."""
        return self.iterations > 1 or self.replay is not None


class Mismatch(Section):
    """Handling of completions whose sampler differs from the trained policy: importance weights
    (docs/off_policy.md)."""

    correction: Literal["sequence_mask", "sequence_truncate", "token_mask", "token_truncate", "m2"] = key(
        "sequence_mask",
        "Whether completions or tokens are weighted, and what a weight above correction_cap becomes: 0 (mask) or the "
        "cap (truncate); m2: tokens, without a cap, of which those furthest from 1 are masked (M2PO, arXiv "
        "2510.01161).",
        neutral="sequence_mask",
    )
    correction_cap: float = key(3.0, "Largest weight.", ge=1, neutral=3.0)
    m2_threshold: float = key(
        0.04,
        "With correction: m2, tokens with the largest squared log-weights are masked until the mean square of the "
        "others, over an update, is at most this.",
        paper="0.04 in AReaL's example",
        gt=0,
        neutral=0.04,
    )
    float32_logits: bool = key(
        False,
        "The trainer computes logits in float32, as float32 models do in any case (cast_lm_head_to_fp32 of TRL); takes "
        "four bytes more for every weight of the head.",
        neutral=False,
    )

    @property
    def weighs_tokens(self) -> bool:
        """Whether each token has a weight with its own cap, rather than each completion."""
        return self.correction.startswith("token")

    @property
    def correction_keys(self) -> dict[str, Any]:
        """Correction keys with values other than neutral."""
        return self.params(only={"correction", "correction_cap", "m2_threshold"})

    @property
    def mismatch_arguments(self) -> dict[str, Any]:
        """These keys under TRL's names; for m2, which TRL lacks, uncapped token weights."""
        m2 = self.correction == "m2"
        return {
            "vllm_importance_sampling_mode": "token_mask" if m2 else self.correction,
            "vllm_importance_sampling_clip_max": None if m2 else self.correction_cap,
            "cast_lm_head_to_fp32": self.float32_logits,
        }
