r"""Offline DPO on harvested pairs, from a fresh copy of M0 (paper, section 2.1, stage 3; appendix B).

The reference policy is the starting point itself: with a fresh adapter that is M0 with the adapter switched off.
`start: warmup` continues the adapter of pi_K instead, with a frozen copy of it as the reference, which has no dropout.

It trains on the tokens that were drawn: the end of turn where the policy wrote it, and none after a completion that the
token budget cut off. Such a one is rejected as it is, without a word on where it should have ended. On the chosen side
(cut off after its box, `\boxed{5}. Let me double-check by`) it teaches to go on after the box: rare where the budget is
roomy, so these pairs stay by default, as in the paper. The harvest's informativeness counts both, and
`pairs.truncated_chosen: avoid` chooses a solution that ended by itself where the prompt has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from g2d.policies.policy import Policy
from g2d.regimes.offline import OfflineJob, train_offline
from g2d.regimes.regime import Regime
from g2d.settings import Section, Steps, key


class Dpo(Section):
    """Stage 3: DPO on the harvested pairs, from a fresh copy of M0 (paper, section 2.1, appendix B)."""

    loss: Literal["sigmoid", "ipo", "ipo_sum"] = key(
        "sigmoid",
        "sigmoid: DPO; ipo: IPO as TRL has it, with log-ratios per token; ipo_sum: IPO as printed (Azar et al., "
        "eq. 17), with log-ratios summed over tokens.",
        paper="sigmoid; ipo in Table 3",
    )
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


def train_dpo(
    base: Policy, pairs: Sequence[Mapping[str, Any]], *, dpo: Dpo, **job: Unpack[OfflineJob]
) -> list[dict[str, Any]]:
    """Train on preference pairs and leave `work/adapter`; for all else see `g2d.regimes.offline.train_offline`.

    Args:
        pairs: with `prompt_ids`, `chosen_ids` and `rejected_ids`; `pairs_with_token_ids` adds them where text is all.
    """
    rows = [{name: pair[name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")} for pair in pairs]

    def trainer(arguments: dict[str, Any], **parts: Any) -> Any:
        from trl import DPOConfig

        from g2d.regimes.pair_trainer import PairTrainer

        configured = DPOConfig(
            **arguments,
            beta=dpo.beta,
            disable_dropout=False,  # TRL's default would turn the paper's LoRA dropout off
            precompute_ref_log_probs=dpo.precompute_reference,
        )
        return PairTrainer(loss=dpo.loss, nll_weight=dpo.nll_weight, args=configured, **parts)

    identity = {"pairs": rows, "dpo": dpo.params()}
    return train_offline("dpo", base, rows, dpo, job, identity=identity, trainer=trainer)


DPO = Regime(
    name="dpo",
    version=3,
    phase="offline",
    settings=Dpo,
    label="DPO",
    card="DPO ({regime}) on pairs harvested {harvested}",
)
