"""Offline DPO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import MicroBatches, Training
from g2d.regimes.common.microbatches import longest
from g2d.regimes.common.offline import train_offline
from g2d.regimes.common.regime import Regime, Trained, TrainingJob
from g2d.rollouts.pairs import Pair, read_pairs, subsample
from g2d.rollouts.rollout import require_own_tokens
from g2d.settings import Rows, Section, Steps, key

if TYPE_CHECKING:
    from transformers import Trainer


class Dpo(Section):
    """Stage 3: DPO on the harvested pairs (paper, section 2.1, appendix B)."""

    loss: Literal["sigmoid", "ipo"] = key(
        "sigmoid", "sigmoid: DPO; ipo: TRL's IPO, log-ratios per token.", paper="sigmoid; ipo in Table 3"
    )
    beta: float = key(0.1, "Strength of the reference policy.", paper="0.1", gt=0)
    epochs: int = key(3, "Passes over the pairs.", paper="3", ge=1)
    learning_rate: float = key(5e-5, "Peak learning rate.", paper="5e-5", gt=0)
    lr_schedule: Literal["cosine", "linear", "constant"] = key("cosine", "Learning-rate schedule.", paper="not stated")
    per_device_batch_size: Rows = key(
        "auto",
        "Pairs per forward pass and device; auto: as many as fit on the GPU, else 4.",
        paper="not stated",
        auto=4,
    )
    gradient_accumulation_steps: int = key(
        4, "Forward passes per gradient step; per_device_batch_size: auto counts as 4.", paper="not stated", ge=1
    )
    start: Literal["base", "warmup"] = key("base", "Start from M0, or from pi_K.", paper="base")
    max_steps: int | None = key(None, "Gradient steps, instead of `epochs`.", unit="steps", ge=1)
    match_pairs_to: Steps | Literal["min"] | None = key(
        None, "Subsample pairs to the number at this K, or the smallest over all K (min).", paper="680 of 708"
    )
    nll_weight: float = key(
        0.0,
        "Weight of the chosen completions' negative log-likelihood, a mean over the tokens of a pass.",
        paper="none",
        ge=0,
        neutral=0.0,
    )
    precompute_reference: bool = key(
        False,
        "Compute reference log-probabilities once: faster, equal up to rounding.",
        paper="not stated",
        neutral=False,
    )

    def sequences(self, samples: int, pairable: float) -> float:
        return 2 * pairable

    def workload(self, budget: int) -> Training:
        free = self.per_device_batch_size == "auto" and not self.nll_weight  # a mean over the tokens of a pass
        return Training(
            budget=budget,
            rows=2 * self.number("per_device_batch_size"),
            per_row=2,
            reference=not self.precompute_reference,
            adapters=2 if self.start == "warmup" else 1,
            update=self.number("per_device_batch_size") * self.gradient_accumulation_steps if free else None,
            passes="by_length",
        )


def read_dpo(job: TrainingJob[object, None], inputs: Values) -> list[Pair]:
    pairs = read_pairs(inputs.pairs)
    require_own_tokens((pair["tokenizer_sha256"] for pair in pairs), job.base, "the pairs")
    matched = inputs.get("matched")
    if matched:
        fewest = min(len(read_pairs(file)) for file in matched)
        pairs = subsample(pairs, fewest, job.seed)
    return pairs


def train_dpo(job: TrainingJob[Dpo, list[Pair]]) -> Trained:
    dpo = job.settings
    pairs = job.data
    rows = [_row(pair) for pair in pairs]

    def trainer(arguments: dict[str, object], microbatches: MicroBatches, **parts: object) -> Trainer:
        from trl import DPOConfig

        from g2d.regimes.offline.pair_trainer import PairTrainer

        configured = DPOConfig(
            **arguments,
            beta=dpo.beta,
            disable_dropout=False,  # TRL's default would disable the paper's LoRA dropout
            precompute_ref_log_probs=dpo.precompute_reference,
            precompute_ref_batch_size=microbatches.rows,
        )
        return PairTrainer(
            loss=dpo.loss, nll_weight=dpo.nll_weight, microbatches=microbatches, args=configured, **parts
        )

    prompts = [pair["prompt_ids"] for pair in pairs]
    completions = [pair["chosen_ids"] for pair in pairs] + [pair["rejected_ids"] for pair in pairs]
    return train_offline(
        "dpo",
        job,
        rows,
        data={"pairs": rows},
        statistics={"n_pairs": len(rows)},
        trainer=trainer,
        lengths=longest(prompts, completions),
    )


def _row(pair: Pair) -> dict[str, list[int]]:
    return {
        "prompt_ids": pair["prompt_ids"],
        "chosen_ids": pair["chosen_ids"],
        "rejected_ids": pair["rejected_ids"],
    }


DPO = Regime(
    name="dpo",
    version=1,
    phase="offline",
    settings=Dpo,
    section="dpo",
    read=read_dpo,
    train=train_dpo,
    label="DPO",
)
