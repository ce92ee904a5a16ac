"""Passes that read a prompt once for all its completions in a batch; equal to TRL's up to rounding.

A packed row is a prompt and some of its completions, separated by a mask; they share the LoRA dropout of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from types import MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from trl.trainer import utils

from g2d.plain import say
from g2d.regimes.common.trainers import evaluation_mode

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx
    from transformers import PreTrainedModel
    from transformers.modeling_outputs import ModelOutput

ROW_TOKENS = 1024  # most tokens of a row with several completions: attention is quadratic
MOST_LOGITS = 2**26  # computed together; 256 MiB in float32
HANDLED = {"input_ids", "attention_mask", "position_ids", "labels", "use_cache"}
PER_TOKEN = ("log_probs", "entropy", "mean_logits", "is_top1")
SAME = {torch.float32: 1e-3, torch.float64: 1e-6}  # relative distance of states; 2e-2 for other types


@dataclass(frozen=True)
class Packed:
    """Packed rows, (rows, width), and the positions of scored tokens."""

    ids: torch.Tensor
    positions: torch.Tensor  # in its sequence
    segments: torch.Tensor  # 0: prompt; 1, 2, ...: completions; -1: padding
    predictors: torch.Tensor  # index into the flattened rows of the state that predicts a token, (tokens,)
    targets: torch.Tensor  # tokens to predict, (tokens,)

    @property
    def mask(self) -> torch.Tensor:
        """Attention mask, (rows, 1, width, width): tokens see earlier ones of their completion and its prompt."""
        queries = self.segments[:, :, None]
        keys = self.segments[:, None, :]
        seen = (queries == keys) | ((keys == 0) & (queries >= 0))
        return (seen & torch.ones_like(seen).tril())[:, None]


def packed(input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Packed | None:
    """Pack a batch, (rows, width); None if no token is scored, or a completion has no prompt."""
    rows: list[_Row] = []
    open_rows: dict[tuple[int, ...], int] = {}
    places: list[tuple[int, int, int]] = []  # (row, column, target)
    for ids, present, of_row in zip(input_ids, attention_mask.bool(), labels, strict=True):
        tokens: list[int] = ids[present].tolist()
        targets: list[int] = of_row[present].tolist()
        scored = [place for place, target in enumerate(targets) if target != -100]
        if not scored:
            continue
        first = scored[0]
        if first == 0:
            return None
        prompt = tuple(tokens[:first])
        completion = tokens[first : scored[-1]]  # the last token predicts nothing
        number = open_rows.get(prompt)
        if number is None or len(rows[number].ids) + len(completion) > ROW_TOKENS:
            number = len(rows)
            open_rows[prompt] = number
            rows.append(_Row.of(prompt))
        begin = rows[number].append(completion, first)
        places.append((number, first - 1, targets[first]))  # predicted by the prompt's last token
        for place in scored[1:]:
            places.append((number, begin + place - first - 1, targets[place]))
    if not rows:
        return None
    width = max(len(row.ids) for row in rows)
    device = input_ids.device
    return Packed(
        ids=_filled([row.ids for row in rows], width, 0, device),
        positions=_filled([row.positions for row in rows], width, 0, device),
        segments=_filled([row.segments for row in rows], width, -1, device),
        predictors=torch.tensor([row * width + column for row, column, _ in places], device=device),
        targets=torch.tensor([target for *_, target in places], device=device),
    )


def _filled(rows: Sequence[list[int]], width: int, padding: int, device: torch.device) -> torch.Tensor:
    return torch.tensor([row + [padding] * (width - len(row)) for row in rows], device=device)


@dataclass
class _Row:
    ids: list[int]
    positions: list[int]
    segments: list[int]
    completions: int = 0

    @classmethod
    def of(cls, prompt: Sequence[int]) -> _Row:
        return cls([*prompt], [*range(len(prompt))], [0] * len(prompt))

    def append(self, completion: Sequence[int], position: int) -> int:
        begin = len(self.ids)
        self.completions += 1
        self.ids += completion
        self.positions += range(position, position + len(completion))
        self.segments += [self.completions] * len(completion)
        return begin


class _Scored:
    """Replaces the model in TRL's forward, with precomputed states."""

    def __init__(self, model: PreTrainedModel, states: torch.Tensor) -> None:
        self.get_output_embeddings = model.get_output_embeddings
        self.base_model = lambda **_: SimpleNamespace(last_hidden_state=states)


def share_prompts(*models: PreTrainedModel | None, at_once: bool = False) -> bool:
    """Make models with TRL's fused head read each prompt once per batch; if one cannot, log why and return False.

    With `at_once`, the head computes all logits of a pass together.
    """
    bases = []
    for model in filter(None, models):
        bases.append(model.get_base_model() if hasattr(model, "get_base_model") else model)
    for base in bases:
        reason = _obstacle(base)
        if reason:
            say(f"every completion is read with its own copy of the prompt: {reason}")
            return False
    for base in bases:
        base.forward = MethodType(_sharing(base.forward, at_once), base)
    return True


def _sharing(fused: MethodType, at_once: bool) -> Callable[..., ModelOutput]:

    @wraps(fused.__func__)  # `generate` reads the signature
    def forward(self: PreTrainedModel, *args: object, fused_lm_head: bool = False, **inputs: Any) -> ModelOutput:
        given = {name for name, value in inputs.items() if value is not None}  # PEFT passes all its arguments
        handled = fused_lm_head and not args and {"input_ids", "attention_mask", "labels"} <= given <= HANDLED
        pack = None
        if handled:
            pack = packed(inputs["input_ids"], inputs["attention_mask"], inputs["labels"])
        if pack is None:
            if fused_lm_head:
                inputs["fused_lm_head"] = True
            return fused(*args, **inputs)
        states = _states(self, pack).flatten(0, 1)[pack.predictors]
        with whole_logits() if at_once else nullcontext():
            scored = fused.__func__(_Scored(self, states[None]), fused_lm_head=True, shift_labels=pack.targets[None])
        mask = inputs["labels"][:, 1:] != -100
        for name in PER_TOKEN:
            values = getattr(scored, name)
            if values is not None:
                scored[name] = values.new_zeros(mask.shape).masked_scatter(mask, values[0])
        scored["label_mask"] = mask
        return scored

    return forward


def _states(model: PreTrainedModel, pack: Packed) -> torch.Tensor:
    """Return the last hidden states of packed rows, (rows, width, size)."""
    mask = pack.mask
    if model.config._attn_implementation == "eager":  # eager attention adds its mask
        lowest = torch.finfo(model.dtype).min
        mask = torch.zeros(mask.shape, dtype=model.dtype, device=mask.device).masked_fill(~mask, lowest)
    return model.base_model(
        input_ids=pack.ids, attention_mask=mask, position_ids=pack.positions, use_cache=False
    ).last_hidden_state


@torch.no_grad()
def _obstacle(model: PreTrainedModel) -> str:
    """Return why a model cannot read packed rows, or why its results differ from plain rows."""
    config = model.config.get_text_config()
    name = config.model_type
    attention = config._attn_implementation
    if attention not in ("sdpa", "eager"):
        return f"attention {attention} does not accept a mask"
    kinds = {*(getattr(config, "layer_types", None) or [])} - {"full_attention"}
    if kinds or getattr(config, "sliding_window", None):
        return f"{name} has layers with another attention ({', '.join(sorted(kinds)) or 'a sliding window'})"
    device = model.get_output_embeddings().weight.device
    ids = (torch.arange(32, device=device).view(4, 8) * 7919 + 17) % config.vocab_size
    ids[:, :5] = ids[[0, 0, 2, 2], :5]  # two prompts of five tokens
    labels = torch.where(torch.arange(8, device=device) < 5, -100, ids)
    pack = packed(ids, torch.ones_like(ids), labels)
    assert pack is not None
    try:
        with evaluation_mode(model):
            plain = model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            states = _states(model, pack).flatten(0, 1)[pack.predictors]
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{name} does not accept a mask ({error})"
    expected = plain[:, 4:-1].flatten(0, 1)
    apart = float((states - expected).norm() / expected.norm())
    same = apart <= SAME.get(expected.dtype, 2e-2)
    return "" if same else f"{name} computes other states with a mask"


# All logits of a pass together, on a CPU; TRL computes them in tiles, twice.


Scored = tuple[torch.Tensor | None, ...]  # log-probabilities, entropy, ...: a value per token, if asked for


class WholeLogits(torch.autograd.Function):
    """TRL's `ChunkedLogProbFunction` for a frozen head without bias."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        temperature: float,
        outputs: Sequence[str],
    ) -> Scored:
        """Score targets, (tokens,), given states, (tokens, size)."""
        ctx.set_materialize_grads(False)  # entropy may have no gradient
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        weight = weight.to(dtype)
        logits = torch.mm(hidden.to(dtype), weight.t()).float().div_(temperature)
        log_probs = logits.log_softmax(dim=-1)
        chosen = log_probs.gather(1, targets[:, None])[:, 0]
        mean_logits = None
        is_top1 = None
        entropy = None
        if "mean_logits" in outputs:
            mean_logits = logits.mean(dim=-1)
        if "is_top1" in outputs:
            is_top1 = logits.argmax(dim=-1) == targets
        del logits
        probs = log_probs.exp_()
        if "entropy" in outputs:
            entropy = torch.special.entr(probs).sum(dim=-1)
        ctx.save_for_backward(weight, targets, probs, chosen if entropy is None else entropy)
        ctx.temperature = temperature
        ctx.hidden_dtype = hidden.dtype
        ctx.mark_non_differentiable(*(values for values in (mean_logits, is_top1) if values is not None))
        return chosen, entropy, None, mean_logits, is_top1  # the third is only for WPO

    @staticmethod
    def backward(
        ctx: FunctionCtx, grad_chosen: torch.Tensor | None, grad_entropy: torch.Tensor | None, *_: object
    ) -> tuple[torch.Tensor, None, None, None, None]:
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
    ) -> Scored:
        plain = bias is None and softcap is None and scale == 1.0 and not weight.requires_grad
        if plain and len(targets) * len(weight) <= MOST_LOGITS:
            scored: Scored = WholeLogits.apply(hidden, weight, targets, temperature, outputs)
        else:
            scored = theirs.apply(hidden, weight, bias, targets, temperature, chunk_size, softcap, scale, outputs)
        return scored

    utils._ChunkedLogProbFunction = SimpleNamespace(apply=apply)
    try:
        yield
    finally:
        utils._ChunkedLogProbFunction = theirs
