"""Kullback-Leibler divergence of a policy from M0, on answers sampled from the policy.

For an answer y to a prompt x it is sum_t KL(pi(. | x, y_<t) || pi_0(. | x, y_<t)), with mean KL(pi || pi_0) over y ~ pi
(Amini, Vieira and Cotterell 2025, "Better estimation of the Kullback-Leibler divergence between language models"). The
mean of log pi(y | x) - log pi_0(y | x) has the same expectation, but varies more and can be negative. An answer
cut off by the token budget counts up to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch.nn import functional as F

from g2d.policies.policy import Policy, load_model
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.rollouts.draw import completed
from g2d.rollouts.engine import Decoding
from g2d.rollouts.transformers_engine import TransformersEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel

AT_ONCE = 2**25  # logits per pass of either model; one answer may exceed it
COLUMNS = ("problem_id", "sample", "token_count", "kl")


def own_answers(
    policy: Policy, base: Policy, problems: Sequence[Problem], prompt: Prompt, decoding: Decoding
) -> pd.DataFrame:
    """Sample answers from a policy and measure its divergence from M0 on them.

    Returns `COLUMNS` by problem and sample, kl in nats. Transformers generates with every engine, so that sampling and
    measuring use the same probabilities. Raises a ValueError unless temperature and top_p are 1.
    """
    if (decoding.temperature, decoding.top_p) != (1.0, 1.0):
        raise ValueError("the divergence is a mean over samples at temperature 1 with top_p 1")
    engine = TransformersEngine.of(policy)
    drawn = [*completed(engine, problems, prompt, decoding)]
    answers = [(completion.prompt_ids or (), completion.token_ids or ()) for *_, completion in drawn]
    measured = zip(drawn, divergences(engine.model, load_model(base), answers), strict=True)
    rows = [(problem.problem_id, sample, done.token_count, kl) for (problem, _, sample, done), kl in measured]
    return pd.DataFrame(rows, columns=list(COLUMNS))


@torch.inference_mode()
def divergences(
    policy: PreTrainedModel | Any, base: PreTrainedModel | Any, answers: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[float]:
    """Return each answer's divergence in nats. An answer is the tokens of its prompt and of its ended completion."""
    sums = torch.zeros(len(answers), dtype=torch.float64)
    order = sorted(range(len(answers)), key=lambda i: sum(map(len, answers[i])), reverse=True)
    while order:
        longest = sum(map(len, answers[order[0]]))
        rows = max(1, AT_ONCE // (longest * policy.config.vocab_size))
        batch, order = order[:rows], order[rows:]
        ids, mask = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(2))
        drawn = torch.zeros_like(mask, dtype=torch.bool)  # positions whose next token is in the completion
        for row, (prompt, completion) in enumerate(answers[i] for i in batch):
            end = len(prompt) + len(completion)
            ids[row, :end], mask[row, :end] = torch.tensor([*prompt, *completion]), 1
            drawn[row, len(prompt) - 1 : end - 1] = True
        own, other = (
            model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).logits[drawn]
            for model in (policy, base)
        )
        # Normalised float32 copies are several times the size of one long answer's logits.
        parts = (logits.split(max(1, AT_ONCE // policy.config.vocab_size)) for logits in (own, other))
        of_tokens = torch.cat([_next_token(*part) for part in zip(*parts, strict=True)])
        sums.index_add_(0, torch.tensor(batch)[drawn.nonzero()[:, 0]], of_tokens.double().cpu())
    return [float(kl) for kl in sums]


def _next_token(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return KL(own || other) of next-token distributions, shape (N,), from logits (N, V)."""
    p, q = (logits.float().log_softmax(-1) for logits in (own, other))
    return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
