"""Sizes of a model, and memory of one pass through it, computed from its config.json.

The model's code runs on torch's fake tensors and storages are counted, so no architecture needs a formula. Two short
models are extrapolated to all blocks. Workspaces of kernels, the CUDA context and gaps are not counted.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from g2d.jobs.files import parse_json
from g2d.policies.model_keys import CONFIG, HubModel, LocalModel, Lora, file_of, lora_config
from g2d.policies.record import on_meta

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from g2d.rewards.model import RewardModel

SHAPES = Path(__file__).parent / "shapes"  # config.json files of shipped configurations
SHORT = (1, 2)  # blocks
SHORT_READING = (2, 3)  # blocks; passes without gradients peak lower with one


@dataclass(frozen=True)
class ModelShape:
    parameters: int
    adapter: int  # 0 if all weights are trained
    blocks: int
    vocabulary: int
    cache_per_token: int  # numbers, summed over blocks
    trains_all: bool = False


class NoConfigError(ValueError):
    """The config.json of a model is missing."""


def config_file(name: str, source: LocalModel | HubModel, section: str = "models") -> Path:
    """Return a model's config.json, or raise a NoConfigError with the way to get it."""
    present = file_of(source)
    if present is not None:
        return present
    if isinstance(source, LocalModel):
        file = Path(source.path, CONFIG)
        raise NoConfigError(f"{section}.{name}: {file} does not exist: correct path, or --config-json {name}=FILE")
    shipped = SHAPES / f"{source.id.replace('/', '--')}.json"
    if shipped.is_file():
        return shipped
    raise NoConfigError(
        f"{section}.{name}: {CONFIG} of {source.id} is not in the Hub's cache; this fetches it and nothing else: "
        f"hf download {source.id} {CONFIG} --revision {source.revision} (or give one: --config-json {name}=FILE)"
    )


def reward_config_file(name: str, model: RewardModel) -> Path:
    """Return a reward model's config.json, or raise a NoConfigError with the way to get it."""
    if model.path is not None:
        return config_file(name, LocalModel(source="local", path=model.path), "rewards")
    source = HubModel.model_validate({"source": "hub", "id": model.id, "revision": model.revision})
    return config_file(name, source, "rewards")


def model_config(file: Path) -> PreTrainedConfig:
    """Load a configuration without the model's code; a ValueError names a file that transformers cannot read."""
    from transformers import AutoConfig

    try:
        values = dict(parse_json(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: no JSON object ({error}): put the model's own there") from None
    kind = values.pop("model_type", None)
    try:
        return AutoConfig.for_model(kind, **values)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{file}: no configuration of a model that transformers knows (model_type {kind!r})"
        ) from error


def model_shape(config: PreTrainedConfig, lora: Lora) -> ModelShape:
    adapted = skeleton(config, lora, dtype=torch.bfloat16)
    adapter = 0
    if not lora.trains_all:
        adapter = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    one = skeleton(shortened(config, 1), None, dtype=torch.bfloat16)
    with torch.no_grad():
        token = torch.empty(1, 1, dtype=torch.long, device="meta")
        cache = one(input_ids=token, use_cache=True).past_key_values
    per_block = sum(keys.numel() + values.numel() for keys, values, *_ in cache)
    return ModelShape(
        parameters=sum(p.numel() for p in adapted.parameters()) - adapter,
        adapter=adapter,
        blocks=config.num_hidden_layers,
        vocabulary=config.vocab_size,
        cache_per_token=per_block * config.num_hidden_layers,
        trains_all=lora.trains_all,
    )


def skeleton(
    config: PreTrainedConfig, lora: Lora | None, *, dtype: torch.dtype, scores: bool = False
) -> PreTrainedModel:
    """Return a model without weights, with an adapter if `lora` has one; a reward model if it `scores`."""
    model = on_meta(config, scores=scores, dtype=dtype)
    if lora is None or lora.trains_all:
        return model
    from peft import get_peft_model

    return get_peft_model(model, lora_config(lora), low_cpu_mem_usage=True)


def shortened(config: PreTrainedConfig, blocks: int) -> PreTrainedConfig:
    short = copy.deepcopy(config)
    short.num_hidden_layers = blocks
    if getattr(short, "layer_types", None) is not None:
        short.layer_types = short.layer_types[:blocks]
    return short


@dataclass(frozen=True)
class PassMemory:
    """Bytes of one pass: `kept` after the forward pass, and `peak`."""

    kept: int
    peak: int


class Storages(TorchDispatchMode):
    """Counts the bytes of new storages, except of `known` tensors."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        out = function(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor.untyped_storage())
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        name = storage._cdata
        if name in self._sizes:
            return
        self._sizes[name] = storage.nbytes()
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, name)

    def _gone(self, name: int) -> None:
        self.live -= self._sizes.pop(name)


@contextmanager
def _on_shapes(
    config: PreTrainedConfig, lora: Lora | None, half: bool, *, scores: bool = False
) -> Iterator[tuple[PreTrainedModel, Storages]]:
    """Yield a model of fake tensors, and the count of storages that its passes make."""
    trains_all = lora is not None and lora.trains_all
    model = skeleton(config, lora, dtype=torch.bfloat16 if half and not trains_all else torch.float32, scores=scores)
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors: list[torch.Tensor] = []
        for module in model.modules():
            for name, old in module._parameters.items():
                if old is not None:
                    weight = torch.nn.Parameter(
                        torch.empty(old.shape, dtype=old.dtype), requires_grad=old.requires_grad
                    )
                    module._parameters[name] = weight
                    tensors.append(weight)
                    if weight.requires_grad:
                        weight.grad = torch.empty_like(weight)
                        tensors.append(weight.grad)
            for name, old in module._buffers.items():
                if old is not None:
                    module._buffers[name] = torch.empty(old.shape, dtype=old.dtype)
                    tensors.append(module._buffers[name])
        storages = Storages(tensors)
        with storages, precision(half and lora is not None):
            yield model, storages


# The passes really run, but on fake tensors: they have shapes and no contents. `Storages` sees each storage that an
# operation makes, and when it is freed. All blocks of a model are alike, so a deep model is measured at two small
# depths and extrapolated. The head is the exception: TRL computes it in tiles, by a formula in `head`.


class Counted:
    """Passes of one model and adapter, each measured once.

    `half`: bfloat16, autocast and checkpointing, as on a GPU; else float32, as on a CPU.
    """

    def __init__(self, config: PreTrainedConfig, lora: Lora, *, half: bool = True) -> None:
        self.config = config
        self.lora = lora
        self.half = half
        self._measured: dict[tuple[str, tuple[int, ...]], PassMemory] = {}

    def training(self, rows: int, tokens: int, checkpointing: bool = True) -> PassMemory:
        """Return the forward and backward pass through the blocks, without the head (see `head`)."""
        return self._over_all_blocks(SHORT, self._train, rows, tokens, checkpointing)

    def reading(self, rows: int, tokens: int, adapted: bool = True) -> PassMemory:
        """Return a pass without gradients, of a frozen policy if not `adapted`."""
        return self._over_all_blocks(SHORT_READING, self._read, rows, tokens, adapted)

    def scoring(self, rows: int, tokens: int) -> PassMemory:
        """Return a pass of a reward model."""
        return self._over_all_blocks(SHORT_READING, self._score, rows, tokens)

    def sampling(self, rows: int, columns: int) -> PassMemory:
        """Return the last step of a generation: its cache is kept."""
        return self._over_all_blocks(SHORT, self._draw, rows, columns)

    def _over_all_blocks(self, short: tuple[int, int], measure: Callable[..., PassMemory], *sizes: int) -> PassMemory:
        """Measure a pass once, on the model if it has few blocks, else extrapolated from two short ones."""
        key = (measure.__name__, sizes)
        if key not in self._measured:
            blocks = self.config.num_hidden_layers
            if blocks <= short[1]:
                self._measured[key] = measure(self.config, *sizes)
            else:
                low, high = [measure(shortened(self.config, n), *sizes) for n in short]
                further = blocks - short[1]
                kept = high.kept + (high.kept - low.kept) * further
                peak = high.peak + (high.peak - low.peak) * further
                self._measured[key] = PassMemory(kept, peak)
        return self._measured[key]

    def _train(self, config: PreTrainedConfig, rows: int, tokens: int, checkpointing: bool) -> PassMemory:
        with _on_shapes(config, self.lora, self.half) as (model, storages):
            model.train()
            if self.half and checkpointing:
                model.gradient_checkpointing_enable()
                model.enable_input_require_grads()
            hidden = _blocks(model)(**_tokens(rows, tokens), use_cache=False).last_hidden_state
            kept = storages.live
            hidden.backward(torch.empty_like(hidden))
            return PassMemory(kept, storages.peak)

    def _read(self, config: PreTrainedConfig, rows: int, tokens: int, adapted: bool) -> PassMemory:
        lora = self.lora if adapted else None
        with torch.no_grad(), _on_shapes(config, lora, self.half) as (model, storages):
            hidden = _blocks(model)(**_tokens(rows, tokens), use_cache=False).last_hidden_state
            del hidden
            return PassMemory(storages.live, storages.peak)

    def _score(self, config: PreTrainedConfig, rows: int, tokens: int) -> PassMemory:
        with torch.no_grad(), _on_shapes(config, None, self.half, scores=True) as (model, storages):
            model.config.get_text_config().use_cache = False
            model.base_model(**_tokens(rows, tokens))
            return PassMemory(storages.live, storages.peak)

    def _draw(self, config: PreTrainedConfig, rows: int, columns: int) -> PassMemory:
        from g2d.rollouts.continuous_batching import Rows
        from g2d.rollouts.engine import Decoding

        with torch.no_grad(), _on_shapes(config, None, self.half) as (model, storages):
            batch = Rows(model, Decoding(1, 1.3, 1.0, columns, rows, 0), [], rows, columns)
            prompt = model(**_tokens(1, 1), use_cache=True, logits_to_keep=1).past_key_values
            nothing = torch.zeros(rows, dtype=torch.long)
            batch.cache.write(batch.every, prompt, nothing, nothing[:1], rows)
            del prompt
            kept = storages.live
            batch.step(columns)
            return PassMemory(kept, storages.peak)

    def head(self, scored: int) -> int:
        """Return the bytes of the head, forward and backward, for `scored` tokens.

        TRL's `_ChunkedLogProbFunction` holds one tile of the logits, later replaced by its gradient, and the gradient
        of the hidden states in float32.
        """
        from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
        from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

        width = self.config.hidden_size
        tile = min(scored, TOKEN_CHUNK_SIZE) * _CHUNKED_LOGPROB_CHUNK_SIZE * 2
        total: int = tile + scored * width * (4 + 2 + 2)
        if self.lora.trains_all:
            total += self.config.vocab_size * width * (2 + 4)  # weights in bfloat16 and their gradient
        return total


def _blocks(model: PreTrainedModel) -> torch.nn.Module:
    if hasattr(model, "get_base_model"):  # it has an adapter
        model = model.get_base_model()
    return model.base_model


def precision(half: bool) -> AbstractContextManager[None]:
    context: AbstractContextManager[None] = nullcontext()
    if half:
        context = torch.autocast("cpu", torch.bfloat16)
    return context


def _tokens(rows: int, tokens: int) -> dict[str, torch.Tensor]:
    return {name: torch.empty(rows, tokens, dtype=torch.long) for name in ("input_ids", "attention_mask")}
