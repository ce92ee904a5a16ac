"""Memory of one pass through a model, computed from its config.json.

The model's code runs on torch's fake tensors and storages are counted, so no architecture needs a formula. Two short
models are extrapolated to all blocks. Workspaces of kernels, the CUDA context and gaps are not counted.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from g2d.jobs.model_folder import attention_of
from g2d.policies.model_keys import Lora, lora_config
from g2d.settings.cached_method import cached_method

Given = ParamSpec("Given")
SHORT = (1, 2)  # blocks


@dataclass(frozen=True)
class Passage:
    """Bytes of one pass: `kept` after the forward pass, and `peak`."""

    kept: int
    peak: int


class Storages(TorchDispatchMode):
    """Counts the bytes of new storages, except of `known` tensors."""

    def __init__(self, known: Iterator[torch.Tensor]) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor.untyped_storage())
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        if (name := storage._cdata) not in self._sizes:
            self._sizes[name] = storage.nbytes()
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._gone, name)

    def _gone(self, name: int) -> None:
        self.live -= self._sizes.pop(name)


def skeleton(config: Any, lora: Lora | None, *, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        attention = attention_of(config.to_dict())
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    if lora is None or lora.trains_all:
        return model
    from peft import get_peft_model

    return get_peft_model(model, lora_config(lora), low_cpu_mem_usage=True)


def shortened(config: Any, blocks: int) -> Any:
    short = copy.deepcopy(config)
    short.num_hidden_layers = blocks
    if getattr(short, "layer_types", None) is not None:
        short.layer_types = short.layer_types[:blocks]
    return short


@contextmanager
def _on_shapes(config: Any, lora: Lora | None, half: bool) -> Iterator[tuple[Any, Storages]]:
    trains_all = lora is not None and lora.trains_all
    model = skeleton(config, lora, dtype=torch.bfloat16 if half and not trains_all else torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = []
        for module in model.modules():
            for tensors_of in (module._parameters, module._buffers):
                for name, old in tensors_of.items():
                    if old is None:
                        continue
                    new = torch.empty(old.shape, dtype=old.dtype)
                    if tensors_of is module._parameters:
                        new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
                    tensors_of[name] = new
                    tensors.append(new)
                    if new.requires_grad:
                        new.grad = torch.empty_like(new)
                        tensors.append(new.grad)
        counted = Storages(iter(tensors))
        with counted, precision(half and lora is not None):
            yield model, counted


def _extrapolated(
    measure: Callable[Concatenate[Counted, Any, Given], Passage],
) -> Callable[Concatenate[Counted, Given], Passage]:
    """Make a method that measures a model extrapolate from two short ones."""

    @cached_method
    @wraps(measure)
    def whole(self: Counted, *given: Given.args, **named: Given.kwargs) -> Passage:
        blocks = self.config.num_hidden_layers
        if blocks <= SHORT[1]:
            return measure(self, self.config, *given, **named)
        low, high = (measure(self, shortened(self.config, n), *given, **named) for n in SHORT)

        def at(first: int, second: int) -> int:
            return second + (second - first) * (blocks - SHORT[1]) // (SHORT[1] - SHORT[0])

        return Passage(at(low.kept, high.kept), at(low.peak, high.peak))

    return whole


class Counted:
    """Passes of one model and adapter, each measured once.

    `half`: bfloat16, autocast and checkpointing, as on a GPU; else float32, as on a CPU.
    """

    def __init__(self, config: Any, lora: Lora, *, half: bool = True) -> None:
        self.config, self.lora, self.half = config, lora, half

    @_extrapolated
    def training(self, config: Any, rows: int, tokens: int, checkpointing: bool = True) -> Passage:
        """Forward and backward pass through the blocks, without the head (see `head`)."""
        with _on_shapes(config, self.lora, self.half) as (model, counted):
            model.train()
            if self.half and checkpointing:
                model.gradient_checkpointing_enable()
                model.enable_input_require_grads()
            hidden = _blocks(model)(**_tokens(rows, tokens), use_cache=False).last_hidden_state
            kept = counted.live
            hidden.backward(torch.empty_like(hidden))
            return Passage(kept, counted.peak)

    @_extrapolated
    def reading(self, config: Any, rows: int, tokens: int, adapted: bool = True) -> Passage:
        """Pass without gradients, of a frozen policy if not `adapted`."""
        with torch.no_grad(), _on_shapes(config, self.lora if adapted else None, self.half) as (model, counted):
            hidden = _blocks(model)(**_tokens(rows, tokens), use_cache=False).last_hidden_state
            del hidden
            return Passage(counted.live, counted.peak)

    @_extrapolated
    def drawing(self, config: Any, rows: int, columns: int) -> Passage:
        from g2d.rollouts.engine import Decoding
        from g2d.rollouts.rows import Rows

        with torch.no_grad(), _on_shapes(config, None, self.half) as (model, counted):
            batch = Rows(model, Decoding(1, 1.3, 1.0, columns, rows, 0), [], rows, columns)
            prompt = model(**_tokens(1, 1), use_cache=True, logits_to_keep=1).past_key_values
            nothing = torch.zeros(rows, dtype=torch.long)
            batch.cache.write(batch.every, prompt, nothing, nothing[:1], rows)
            del prompt
            kept = counted.live
            batch.step(columns)
            return Passage(kept, counted.peak)

    def head(self, scored: int) -> int:
        """Return the bytes of the head, forward and backward, for `scored` tokens.

        TRL's `_ChunkedLogProbFunction` holds one tile of the logits, which its gradient replaces, and the gradient of
        the hidden states in float32.
        """
        from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
        from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

        width, vocabulary = self.config.hidden_size, self.config.vocab_size
        of_head = vocabulary * width * (2 + 4) if self.lora.trains_all else 0  # weights in bfloat16 and their gradient
        tile = min(scored, TOKEN_CHUNK_SIZE) * _CHUNKED_LOGPROB_CHUNK_SIZE * 2
        return tile + scored * width * (4 + 2 + 2) + of_head


def _blocks(model: Any) -> Any:
    return getattr(model, "get_base_model", lambda: model)().base_model


def precision(half: bool) -> Any:
    return torch.autocast("cpu", torch.bfloat16) if half else nullcontext()


def _tokens(rows: int, tokens: int) -> dict[str, torch.Tensor]:
    return {name: torch.empty(rows, tokens, dtype=torch.long) for name in ("input_ids", "attention_mask")}
