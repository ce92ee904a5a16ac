"""Offline DPO, and IPO."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from g2d.jobs.snakemake_jobs import Values
from g2d.memory.workload import Training
from g2d.regimes.common.regime import Regime, Trained, TrainingJob
from g2d.regimes.offline.pairs import PairKeys, read_own_pairs, train_pairs
from g2d.rollouts.pairs import Pair, read_pairs, subsample
from g2d.settings import Steps, key

if TYPE_CHECKING:
    import torch

    from g2d.regimes.offline.pair_trainer import Scores


class Dpo(PairKeys):
    """Stage 3: DPO on the harvested pairs (paper, section 2.1, appendix B)."""

    loss: Literal["sigmoid", "ipo"] = key(
        "sigmoid", "sigmoid: DPO; ipo: TRL's IPO, log-ratios per token.", paper="sigmoid; ipo in Table 3"
    )
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

    def workload(self, budget: int) -> Training:
        training = replace(super().workload(budget), reference=not self.precompute_reference)
        if self.nll_weight:  # a mean over the tokens of a pass
            training = replace(training, update=None, divisible=False)
        return training


def dpo_loss(dpo: Dpo, chosen: Scores, rejected: Scores) -> torch.Tensor:
    """Return the loss of every pair, (pairs,).

    sigmoid is DPO (Rafailov et al. 2023, equation 7). ipo is TRL's version of Azar et al. 2023 (arXiv 2310.12036), with
    beta for tau and log-ratios per token.
    """
    from torch.nn.functional import logsigmoid

    if dpo.loss == "sigmoid":
        return -logsigmoid(dpo.beta * (chosen.log_ratios - rejected.log_ratios))
    per_token = chosen.log_ratios / chosen.n_tokens - rejected.log_ratios / rejected.n_tokens
    return (per_token - 1 / (2 * dpo.beta)) ** 2


def read_dpo(job: TrainingJob[object, None], inputs: Values) -> list[Pair]:
    pairs = read_own_pairs(job, inputs)
    matched = inputs.get("matched")
    if matched:
        fewest = min(len(read_pairs(file)) for file in matched)
        pairs = subsample(pairs, fewest, job.seed)
    return pairs


def train_dpo(job: TrainingJob[Dpo, list[Pair]]) -> Trained:
    dpo = job.settings
    return train_pairs(job, dpo_loss, nll_weight=dpo.nll_weight, precompute_reference=dpo.precompute_reference)


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
