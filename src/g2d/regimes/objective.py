"""The keys of GRPO's objective beside `loss` and `beta`, as TRL 1.16 has them.

| paper | keys |
|---|---|
| clip-higher (DAPO, arXiv 2503.14476) | `loss: dapo`, `epsilon_high: 0.28` |
| Dr. GRPO (arXiv 2503.20783) | `loss: dr_grpo`, `scale_rewards: none` |
| GSPO (arXiv 2507.18071) | `importance_sampling: sequence` with `loss: grpo` |
| CISPO (arXiv 2506.13585, 2510.13786) | `loss: cispo`, `epsilon_high: 5` |
| Revisiting GRPO (arXiv 2505.22257, eq. 2) | `deviation: population` |

At `updates_per_generation` and `iterations` 1 the policy is the one that sampled, the ratio is 1, and no clip can act.
"""

from __future__ import annotations

from typing import Any, Literal

from g2d.settings import Section, key

Loss = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo"]  # vespo needs another vLLM correction


class Objective(Section):
    """GRPO's objective beside `loss` and `beta`."""

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

    def check_clip(self, loss: str) -> None:
        """Refuse a CISPO without its clip.

        Raises:
            ValueError: one sentence that names the keys and the fix.
        """
        if loss == "cispo" and (self.epsilon_high is None or self.epsilon_high < 1):
            raise ValueError(
                f"loss: cispo clips the ratio at epsilon_high itself, which is {self.epsilon_high}: set it to 1 or "
                "more (5 in arXiv 2510.13786)"
            )

    def check_deviation(self) -> None:
        """Refuse a standard deviation that nothing is divided by.

        Raises:
            ValueError: one sentence that names the keys and the fix.
        """
        if self.scale_rewards == "none" and self.deviation != "unbiased":
            raise ValueError(
                f"deviation: {self.deviation} is of the rewards' scale, and scale_rewards: none divides by 1: drop "
                "deviation, or set scale_rewards to group or batch"
            )

    @property
    def objective_arguments(self) -> dict[str, Any]:
        """These keys by TRL's names."""
        return {
            "epsilon": self.epsilon,
            "epsilon_high": self.epsilon_high,
            "importance_sampling_level": self.importance_sampling,
            "scale_rewards": self.scale_rewards,
            "use_bias_correction_kl": self.bias_corrected_kl,
            "entropy_coef": self.entropy_coefficient,
            "sapo_temperature_neg": 1.05,  # arXiv 2511.20347; TRL's defaults
            "sapo_temperature_pos": 1.0,
        }
