r"""Offline DPO on harvested pairs, from a fresh copy of M0 (paper, section 2.1, stage 3; appendix B).

The reference policy is the starting point itself: with a fresh adapter that is M0 with the adapter switched off.
`start: warmup` continues the adapter of pi_K instead, with a frozen copy of it as the reference.

The chat template closes every completion with the end-of-turn token, also one that the token budget cut off, where the
policy wrote none. On the rejected side, DPO learns to end a turn there less often, which does no harm. On the chosen
side (cut off after its box, `\boxed{5}. Let me double-check by`), it learns to stop in the middle of a sentence: rare
where the budget is roomy, so these pairs stay by default, as in the paper. The harvest's informativeness counts both,
and `pairs.truncated_chosen: avoid` chooses a solution that ended by itself where the prompt has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from g2d.policies.policy import Policy
from g2d.regimes.offline import STEP_0_TOLERANCE, OfflineJob, require_no_reward, train_offline
from g2d.regimes.regime import Regime
from g2d.settings import Section, Steps, key


class Dpo(Section):
    """Stage 3: DPO on the harvested pairs, from a fresh copy of M0 (paper, section 2.1, appendix B)."""

    loss: Literal["sigmoid", "ipo"] = key("sigmoid", "TRL loss_type.", paper="sigmoid; ipo in Table 3")
    beta: float = key(0.1, "Strength of the reference policy.", paper="0.1", gt=0)
    epochs: int = key(3, "Passes over the pairs.", paper="3", ge=1)
    learning_rate: float = key(5e-5, "Peak learning rate.", paper="5e-5", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="not stated")
    per_device_batch_size: int = key(4, "Pairs per device and accumulation step.", paper="not stated", ge=1)
    gradient_accumulation_steps: int = key(4, "Accumulation steps per gradient step.", paper="not stated", ge=1)
    start: Literal["base", "warmup"] = key("base", "Start from a fresh M0, or from pi_K.", paper="base")
    max_steps: int | None = key(
        None, "Gradient steps, however many pairs there are; null: as many as the epochs take.", unit="steps", ge=1
    )
    pairs_per_prompt: int = key(
        1, "Pairs of every pairable prompt, all different; fewer where it has fewer.", paper="1", ge=1
    )
    match_pairs_to: Steps | Literal["min"] | None = key(
        None,
        "Subsample the pairs to the number of pairable prompts at this K, or to the smallest number over all K (min).",
        paper="680 of 708",
    )
    nll_weight: float = key(
        0.0,
        "Weight of the chosen completions' mean negative log-likelihood per token, added to the loss (TRL's sft term).",
        paper="none",
        ge=0,
        neutral=0.0,
    )
    precompute_reference: bool = key(
        False,
        "Score the pairs under the reference once, before training, and not in every epoch: less time, and the same "
        "loss but for its last bits.",
        paper="not stated",
        neutral=False,
    )


def step_0_loss(dpo: Dpo) -> float:
    """The loss of a policy that equals its reference, without the NLL term: ln 2 for sigmoid, (1 / 2 beta)^2 for IPO.

    Rafailov et al. 2023, equation 7; Azar et al. 2023, equation 17.
    """
    return math.log(2) if dpo.loss == "sigmoid" else (0.5 / dpo.beta) ** 2


def require_start_at_reference(first: Mapping[str, Any], dpo: Dpo) -> None:
    """Check that policy and reference agree before the first update.

    Without the NLL term the loss is then known. With it, the loss depends on the data, and the rewards are looked at.

    Args:
        first: row of the trainer's log.

    Raises:
        RuntimeError: they do not.
    """
    if dpo.nll_weight > 0:
        require_no_reward(first)
    elif not abs(first["loss"] / (expected := step_0_loss(dpo)) - 1) <= STEP_0_TOLERANCE:
        raise RuntimeError(f"DPO's first loss is {first['loss']:.4f}, not {expected:.4f}: the reference is not M0")


def train_dpo(
    base: Policy, pairs: Sequence[Mapping[str, Any]], *, dpo: Dpo, **job: Unpack[OfflineJob]
) -> list[dict[str, Any]]:
    """Train on preference pairs and leave `work/adapter`; for all else see `g2d.regimes.offline.train_offline`.

    Args:
        pairs: rows with `prompt`, `chosen` and `rejected` as message lists.
    """
    rows = [{key: pair[key] for key in ("prompt", "chosen", "rejected")} for pair in pairs]

    def trainer(arguments: dict[str, Any], **parts: Any) -> Any:
        from trl import DPOConfig, DPOTrainer

        with_nll = dpo.nll_weight > 0
        configured = DPOConfig(
            **arguments,
            beta=dpo.beta,
            loss_type=[dpo.loss, "sft"] if with_nll else [dpo.loss],
            loss_weights=[1.0, dpo.nll_weight] if with_nll else None,
            disable_dropout=False,  # TRL's default would turn the paper's LoRA dropout off
            precompute_ref_log_probs=dpo.precompute_reference,
        )
        return DPOTrainer(args=configured, **parts)

    return train_offline(
        "dpo",
        base,
        rows,
        dpo,
        job,
        identity={"pairs": rows, "dpo": dpo.params()},
        trainer=trainer,
        check=lambda first: require_start_at_reference(first, dpo),
    )


DPO = Regime(
    name="dpo",
    version=1,
    phase="offline",
    settings=Dpo,
    label="DPO",
    card="DPO ({regime}) on pairs harvested {harvested}",
)
