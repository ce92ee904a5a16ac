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
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from g2d.jobs.cost import Meter
from g2d.policies.policy import Policy, as_json, load_tokenizer
from g2d.policies.settings import Lora
from g2d.regimes.checkpoints import Checkpointing, Checkpoints, train
from g2d.regimes.regime import Regime
from g2d.regimes.training import (
    hand_over_adapter,
    lora_config,
    read_log,
    restore_token_count,
    starting_model,
    trainer_arguments,
)
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


# Both losses are known before the first update, when policy and reference agree (Rafailov et al. 2023, equation 7;
# Azar et al. 2023, equation 17): a different value means that the reference is not the starting point.
STEP_0_TOLERANCE = 0.02


def step_0_loss(dpo: Dpo) -> float:
    """The loss of a policy that equals its reference: ln 2 for sigmoid, (1 / 2 beta)^2 for IPO."""
    return math.log(2) if dpo.loss == "sigmoid" else (0.5 / dpo.beta) ** 2


def train_dpo(
    base: Policy,
    pairs: Sequence[Mapping[str, Any]],
    *,
    dpo: Dpo,
    lora: Lora,
    seed: int,
    work: Path,
    start: Policy | None = None,
    checkpointing: Checkpointing | None = None,
    tracking: Mapping[str, Any] | None = None,
    meter: Meter | None = None,
    version: int = 0,
) -> list[dict[str, Any]]:
    """Train on preference pairs and leave `work/adapter`.

    An attempt that was stopped leaves checkpoints in `work`, and the next one goes on from them.

    Args:
        base: M0.
        pairs: rows with `prompt`, `chosen` and `rejected` as message lists.
        work: a folder to train in, kept between attempts.
        start: pi_K to start from; None for a fresh adapter on M0.
        checkpointing: how often to save on the way.
        tracking: from `tracking_arguments`; nothing is reported if None.
        meter: of the job that this is; checkpoints keep its bill.
        version: of the stage; an attempt of another version is not continued.

    Returns:
        The trainer's log, one entry per gradient step.

    Raises:
        TrainingStoppedError: a signal stopped it early.
        RuntimeError: the first loss is not the one that an untrained policy must have.
    """
    rows = [{key: pair[key] for key in ("prompt", "chosen", "rejected")} for pair in pairs]
    job = {
        "version": version,
        "base": as_json(base),
        "pairs": rows,
        "dpo": dpo.params(),
        "lora": lora.params(),
        "seed": seed,
        "start": as_json(start) if start else None,
    }
    checkpoints = Checkpoints(work, job, meter or Meter(str(work), "train_dpo"))

    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    arguments = DPOConfig(
        **trainer_arguments(checkpoints.draft, seed, tracking),
        num_train_epochs=dpo.epochs,
        max_steps=dpo.max_steps or -1,
        learning_rate=dpo.learning_rate,
        lr_scheduler_type=dpo.lr_schedule,
        per_device_train_batch_size=dpo.per_device_batch_size,
        gradient_accumulation_steps=dpo.gradient_accumulation_steps,
        beta=dpo.beta,
        loss_type=[dpo.loss],
        max_length=None,  # a truncated chosen completion would lose the box that earned its reward
        disable_dropout=False,  # TRL's default would turn the paper's LoRA dropout off
    )
    trainer: Any = DPOTrainer(
        model=starting_model(base, start),
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=load_tokenizer(base),
        peft_config=lora_config(lora) if start is None else None,
    )

    reached = train(
        trainer,
        checkpoints,
        checkpointing or Checkpointing(),
        # The reference adapter of `start` is made anew from it. Beside it, the trainer would not load our own.
        save=lambda folder: shutil.rmtree(folder / "ref", ignore_errors=True),
        restore=restore_token_count(trainer),
    )
    log = read_log(reached)
    first, expected = log[0]["loss"], step_0_loss(dpo)
    # Dropout in a warmed-up adapter makes policy and reference differ from the first forward pass on.
    if start is None and abs(first / expected - 1) > STEP_0_TOLERANCE:
        raise RuntimeError(f"DPO's first loss is {first:.4f}, not {expected:.4f}: the reference is not M0")
    hand_over_adapter(reached, work / "adapter", base)
    return log


DPO = Regime(
    name="dpo",
    version=1,
    phase="offline",
    settings=Dpo,
    card="DPO ({regime}) on pairs harvested {harvested}",
)
