"""Log-probabilities of tokens from all their logits in one pass, on a CPU; TRL computes logits in tiles, twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from trl.trainer import utils

MOST_LOGITS = 2**26  # 256 MiB in float32


class WholeLogits(torch.autograd.Function):
    """TRL's `ChunkedLogProbFunction` for a frozen head without bias."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        temperature: float,
        outputs: Sequence[str],
    ) -> tuple[torch.Tensor | None, ...]:
        """Score targets, (tokens,), given states, (tokens, size)."""
        ctx.set_materialize_grads(False)  # entropy may have no gradient
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        weight = weight.to(dtype)
        logits = torch.mm(hidden.to(dtype), weight.t()).float().div_(temperature)
        log_probs = logits.log_softmax(dim=-1)
        chosen = log_probs.gather(1, targets[:, None])[:, 0]
        mean_logits = logits.mean(dim=-1) if "mean_logits" in outputs else None
        is_top1 = logits.argmax(dim=-1) == targets if "is_top1" in outputs else None
        del logits
        probs = log_probs.exp_()
        entropy = torch.special.entr(probs).sum(dim=-1) if "entropy" in outputs else None
        ctx.save_for_backward(weight, targets, probs, chosen if entropy is None else entropy)
        ctx.temperature = temperature
        ctx.hidden_dtype = hidden.dtype
        ctx.mark_non_differentiable(*(values for values in (mean_logits, is_top1) if values is not None))
        return chosen, entropy, None, mean_logits, is_top1  # the third is only for WPO

    @staticmethod
    def backward(ctx: Any, grad_chosen: torch.Tensor | None, grad_entropy: torch.Tensor | None, *_: Any) -> Any:
        weight, targets, probs, entropy = ctx.saved_tensors
        grad_chosen = torch.zeros(len(probs)) if grad_chosen is None else grad_chosen.float()
        gradient = (probs * -grad_chosen[:, None]).scatter_add_(1, targets[:, None], grad_chosen[:, None])
        if grad_entropy is not None:
            inner = torch.special.entr(probs).addcmul_(probs, entropy[:, None], value=-1)
            gradient.addcmul_(inner, grad_entropy.float()[:, None])
        gradient.div_(ctx.temperature)
        return torch.mm(gradient.to(weight.dtype), weight).to(ctx.hidden_dtype), None, None, None, None


@contextmanager
def whole_logits() -> Iterator[None]:
    theirs = utils._ChunkedLogProbFunction

    def apply(
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        temperature: float,
        chunk_size: int,
        softcap: float | None,
        scale: float,
        outputs: Sequence[str],
    ) -> Any:
        plain = bias is None and softcap is None and scale == 1.0 and not weight.requires_grad
        if plain and len(targets) * len(weight) <= MOST_LOGITS:
            return WholeLogits.apply(hidden, weight, targets, temperature, outputs)
        return theirs.apply(hidden, weight, bias, targets, temperature, chunk_size, softcap, scale, outputs)

    utils._ChunkedLogProbFunction = SimpleNamespace(apply=apply)
    try:
        yield
    finally:
        utils._ChunkedLogProbFunction = theirs
