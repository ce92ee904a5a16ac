"""Trainings on the pairs of a harvest: a pair loss is its keys and one function of log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import MicroBatches, Training
from g2d.regimes.common.microbatches import longest
from g2d.regimes.common.offline import train_offline
from g2d.regimes.common.regime import OfflineEntry, OfflineKeys, Trained, TrainingJob
from g2d.rollouts.pairs import Pair, read_pairs
from g2d.rollouts.rollout import require_own_tokens
from g2d.settings import key

if TYPE_CHECKING:
    import torch
    from transformers import Trainer

    from g2d.regimes.offline.pair_trainer import Scores


class PairKeys(OfflineKeys):
    """Keys of all pair losses."""

    has_reference: ClassVar[bool] = True  # whether the loss compares with the start of the training

    beta: float = key(0.1, "Strength of the reference policy.", paper="0.1", gt=0)

    def sequences(self, samples: int, pairable: float) -> float:
        return 2 * pairable

    def workload(self, budget: int) -> Training:
        training = super().workload(budget)
        return replace(
            training,
            rows=2 * training.rows,
            per_row=2,
            reference=self.has_reference,
            adapters=2 if self.start == "warmup" else 1,
        )


class PairEntry(PairKeys, OfflineEntry):
    """Policies trained on the pairs of the harvest of pi_K, one per K."""


Keys = TypeVar("Keys", bound=PairKeys)
PairLoss = Callable[[Keys, "Scores", "Scores"], "torch.Tensor"]  # of keys, chosen and rejected completions; (pairs,)


def read_own_pairs(job: TrainingJob[object, None], inputs: Values) -> list[Pair]:
    """Read the pairs of a harvest; a ValueError if they have the tokens of another tokenizer."""
    pairs = read_pairs(inputs.pairs)
    require_own_tokens((pair["tokenizer_sha256"] for pair in pairs), job.base, "the pairs")
    return pairs


def train_pairs(
    job: TrainingJob[Keys, list[Pair]],
    loss: PairLoss[Keys],
    *,
    nll_weight: float = 0.0,
    precompute_reference: bool = False,
) -> Trained:
    """Train on pairs by `loss`, with the same weight for every pair of a gradient step.

    Args:
        nll_weight: weight of the chosen completions' negative log-likelihood, a mean over the tokens of a pass.
        precompute_reference: score the reference once, before training.
    """
    settings = job.settings
    pairs = job.data
    rows = [_row(pair) for pair in pairs]

    def trainer(arguments: dict[str, object], microbatches: MicroBatches, **parts: object) -> Trainer:
        from trl import DPOConfig

        from g2d.regimes.offline.pair_trainer import PairTrainer

        configured = DPOConfig(
            **arguments,
            beta=settings.beta,
            disable_dropout=False,  # TRL's default would disable the paper's LoRA dropout
            precompute_ref_log_probs=precompute_reference
            or not settings.has_reference,  # else TRL loads a second model
            precompute_ref_batch_size=microbatches.rows,
        )
        return PairTrainer(
            loss=partial(loss, settings),
            has_reference=settings.has_reference,
            nll_weight=nll_weight,
            microbatches=microbatches,
            args=configured,
            **parts,
        )

    prompts = [pair["prompt_ids"] for pair in pairs]
    completions = [pair["chosen_ids"] for pair in pairs] + [pair["rejected_ids"] for pair in pairs]
    return train_offline(
        job,
        rows,
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
