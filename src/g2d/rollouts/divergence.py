"""The Kullback-Leibler divergence of a policy from M0, on answers that the policy samples.

Of an answer y to a prompt x it is sum_t KL(pi(. | x, y_<t) || pi_0(. | x, y_<t)), whose mean over y ~ pi is
KL(pi || pi_0), by the chain rule (Amini, Vieira and Cotterell 2025, "Better estimation of the Kullback-Leibler
divergence between language models"). The mean of log pi(y | x) - log pi_0(y | x) is the same, but varies more and can
be negative. Both hold for answers drawn at temperature 1 with top_p 1 alone. Answers that the token budget cuts off
count as far as they go.
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

AT_ONCE = 2**25  # logits of a pass of either model; one answer may have more
COLUMNS = ("problem_id", "sample", "token_count", "kl")


def own_answers(
    policy: Policy, base: Policy, problems: Sequence[Problem], prompt: Prompt, decoding: Decoding
) -> pd.DataFrame:
    """Draw answers of a policy and measure how far it is from M0 on them: `COLUMNS`, a row per problem and sample, with
    kl in nats, over all tokens of the answer.

    Drawn by transformers whatever the engine, so that the probabilities are those that the answers were drawn with. A
    ValueError if they are not samples of the policy itself.
    """
    if (decoding.temperature, decoding.top_p) != (1.0, 1.0):
        raise ValueError("the divergence is a mean over samples at temperature 1 with top_p 1")
    engine = TransformersEngine.of(policy)
    drawn = [*completed(engine, problems, prompt, decoding)]
    answers = [(completion.prompt_ids or (), completion.token_ids or ()) for *_, completion in drawn]
    found = zip(drawn, divergences(engine.model, load_model(base), answers), strict=True)
    rows = [(problem.problem_id, sample, done.token_count, kl) for (problem, _, sample, done), kl in found]
    return pd.DataFrame(rows, columns=list(COLUMNS))


@torch.inference_mode()
def divergences(
    policy: PreTrainedModel | Any, base: PreTrainedModel | Any, answers: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[float]:
    """Of every answer (the tokens of a prompt and of its completion, the one that ended it included), the sum over its
    tokens of the divergence of the policy's next token from that of M0, in nats."""
    found = torch.zeros(len(answers), dtype=torch.float64)
    order = sorted(range(len(answers)), key=lambda i: sum(map(len, answers[i])), reverse=True)
    while order:
        longest = sum(map(len, answers[order[0]]))
        rows = max(1, AT_ONCE // (longest * policy.config.vocab_size))
        batch, order = order[:rows], order[rows:]
        ids, mask = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(2))
        drawn = torch.zeros_like(mask, dtype=torch.bool)  # where the next token is one of the completion
        for row, (prompt, completion) in enumerate(answers[i] for i in batch):
            end = len(prompt) + len(completion)
            ids[row, :end], mask[row, :end] = torch.tensor([*prompt, *completion]), 1
            drawn[row, len(prompt) - 1 : end - 1] = True
        own, other = (
            model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).logits[drawn]
            for model in (policy, base)
        )
        # In parts, for in float32 and normalised they are several times the logits of one long answer.
        parts = (logits.split(max(1, AT_ONCE // policy.config.vocab_size)) for logits in (own, other))
        of_tokens = torch.cat([_next_token(*part) for part in zip(*parts, strict=True)])
        found.index_add_(0, torch.tensor(batch)[drawn.nonzero()[:, 0]], of_tokens.double().cpu())
    return [float(kl) for kl in found]


def _next_token(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(own || other) of next-token distributions, (N,), from their logits, (N, V)."""
    p, q = (logits.float().log_softmax(-1) for logits in (own, other))
    return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
