"""Memory that a job needs on a card, part by part, each with its arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from g2d.memory.workload import Drawing, Training
from g2d.rollouts.free_memory import GIB
from g2d.rollouts.settings import EngineSettings

if TYPE_CHECKING:  # both import torch
    from g2d.memory.model_shape import ModelShape
    from g2d.memory.passes import Counted

CONTEXT = GIB  # assumed: CUDA's context, loaded kernels and their workspaces
ROOMY = 0.9  # of the card; torch's allocator leaves gaps, so what needs more may fail
GATHERED = "the block that computes, the next one, embedding and head"
VLLM = "vLLM"  # its part beside a trainer
GRAPHS = GIB // 2  # assumed: vLLM's CUDA graphs
SAMPLER = 3  # float32 copies of a step's logits in vLLM: logits, processed log-probabilities, probabilities


@dataclass(frozen=True)
class Part:
    """One term of the sum."""

    name: str
    bytes: int
    how: str  # the arithmetic in words


@dataclass(frozen=True)
class Need:
    """What one job needs of a card."""

    job: str
    parts: list[Part]
    card: int  # bytes
    said: list[str] = field(default_factory=list)  # notes on vLLM's cache
    needs_more: bool = False  # it cannot run on this card whatever the sum: vLLM's share holds no sequence

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def verdict(self) -> str:
        """fits, tight or does not fit."""
        if self.needs_more or self.total > self.card:
            return "does not fit"
        return "fits" if self.total <= ROOMY * self.card else "tight"


@dataclass(frozen=True)
class Card:
    """The card, and the longest prompt."""

    memory: int  # bytes
    prompt_tokens: int  # assumed


def training_need(training: Training, shape: ModelShape, counted: Counted, engine: EngineSettings, card: Card) -> Need:
    """Memory of a training, and of what generates in the same process."""
    rows, tokens = training.rows, card.prompt_tokens + training.budget
    n = training.parts
    gathered = 2 * (shape.parameters - shape.outside) // shape.blocks + shape.outside
    passage = counted.training(rows, tokens, training.checkpointing)
    head = counted.head(rows * training.budget)
    blocks = "checkpointed blocks" if training.checkpointing else "blocks"
    one = "one block, run again backwards" if training.checkpointing else "one block backwards"
    moments = {one: passage.peak - passage.kept, "tiles of the logits": head}
    if training.reference:
        moments["the reference's pass"] = counted.reading(rows, tokens).peak
    moment, most = max(moments.items(), key=lambda item: item[1])
    parts = [
        *(_all_weights(training, shape) if shape.trains_all else _with_adapter(training, shape)),
        *([Part("gathered", 2 * gathered, f"{gathered:,} x 2 bytes: {GATHERED}")] if n > 1 else []),
        Part("activations kept", passage.kept, f"{rows} x {tokens} tokens, {shape.blocks} {blocks}"),
        Part("largest moment", most, moment),
    ]
    if training.float32_head:
        head = counted.config.vocab_size * counted.config.hidden_size
        parts.append(Part("head in float32", 4 * head, f"{head:,} x 4 bytes"))
    if training.teacher is not None:
        others = int(training.teacher or shape.parameters)
        parts.append(Part("teacher", 2 * others, f"{others:,} x 2 bytes"))
    said, needs_more = [], False
    if training.at_once is not None and engine.name == "vllm":
        share = engine.training_gpu_memory_utilization
        cache = vllm_cache(shape, counted, card, share, training.budget, most_sequences=training.at_once)
        parts.append(Part(VLLM, int(share * card.memory), f"{share:g} of the card"))
        needs_more = cache.sequences < 1
        said += [cache.words("engine.training_gpu_memory_utilization")]
    elif training.batch is not None:
        graph = engine.cuda_graph and not training.own_copy  # a copy has new weights, which no old graph reads
        columns = cache_columns(tokens, graph)
        drawn = counted.drawing(training.batch, columns)
        if training.own_copy:
            parts.append(Part("M0 to generate", 4 * shape.parameters, "as it is and as it was handed over"))
        kept = f"keys and values of {training.batch} x {columns} tokens"
        # It generates when no activations are kept, so only what exceeds those is added, but a graph stays.
        if graph:
            parts.append(Part("generation, with its graph", drawn.peak, kept))
        elif (beyond := drawn.peak - passage.kept - most) > 0:
            parts.append(Part("generation, beyond these", beyond, kept))
    if shape.trains_all and (beyond := 4 * shape.parameters - passage.kept - most) > 0:
        parts.append(Part("AdamW's step, beyond these", beyond, f"{shape.parameters:,} x 4 bytes: its intermediates"))
    parts.append(Part("context and kernels", CONTEXT, "assumed"))
    return Need(training.name, parts, card.memory, said, needs_more)


def _with_adapter(training: Training, shape: ModelShape) -> list[Part]:
    """What lives as long as a training: M0 in bfloat16, and an adapter."""
    n, divided = training.parts, f" / {training.parts}" * (training.parts > 1)
    state = (16 * shape.adapter + 4 * shape.adapter * (training.adapters - 1)) // n
    each = "16 bytes" if training.adapters == 1 else "(16 + 4 of the reference) bytes"
    return [
        Part("weights", 2 * shape.parameters // n, f"{shape.parameters:,} x 2 bytes{divided}"),
        Part("adapter, gradient, Adam", state, f"{shape.adapter:,} x {each}{divided}"),
    ]


def _all_weights(training: Training, shape: ModelShape) -> list[Part]:
    """The same of float32 weights, all of which are trained; their reference, or a teacher, is another model."""
    parts = [Part("weights, gradients, Adam", 16 * shape.parameters, f"{shape.parameters:,} x 16 bytes")]
    if training.teacher is None and (training.reference or training.reference_model):
        parts.append(Part("reference", 4 * shape.parameters, f"{shape.parameters:,} x 4 bytes"))
    return parts


def drawing_need(drawing: Drawing, shape: ModelShape, counted: Counted, engine: EngineSettings, card: Card) -> Need:
    """Memory of drawing completions from a frozen policy."""
    tokens = card.prompt_tokens + drawing.budget
    if engine.name == "vllm" and not drawing.compared:
        share = engine.gpu_memory_utilization
        cache = vllm_cache(shape, counted, card, share, drawing.budget, split=engine.tensor_parallel_size)
        parts = [*cache.parts, Part("keys and values", max(cache.bytes, 0), f"the rest of {share:g} of the card")]
        said = [cache.words("engine.gpu_memory_utilization")]
        return Need(drawing.name, parts, card.memory, said, cache.sequences < 1)
    graph = engine.cuda_graph and not drawing.compared
    columns = cache_columns(tokens, graph)
    drawn = counted.drawing(drawing.batch, columns)
    step = drawn.peak - drawn.kept
    prompts = -(-drawing.batch // drawing.samples)
    read = counted.reading(prompts, card.prompt_tokens, adapted=False).peak
    return Need(
        drawing.name,
        [
            Part("weights", 2 * shape.parameters, f"{shape.parameters:,} x 2 bytes"),
            *([] if shape.trains_all else [Part("adapter", 4 * shape.adapter, f"{shape.adapter:,} x 4 bytes")]),
            Part(
                "keys and values",
                drawn.kept,
                f"{drawing.batch} x {columns} tokens x {2 * shape.cache_per_token:,} bytes",
            ),
            Part("largest moment", step + read, "one token of all rows, kept by its graph, and their prompts")
            if graph
            else Part("largest moment", max(step, read), "one token of all rows, or their prompts"),
            *(_compared(shape, counted, tokens, drawn.kept + max(step, read)) if drawing.compared else []),
            Part("context and kernels", CONTEXT, "assumed"),
        ],
        card.memory,
    )


def _compared(shape: ModelShape, counted: Counted, tokens: int, drawn: int) -> list[Part]:
    """What reading answers takes beyond drawing them, when M0 is there and the keys and values are gone.

    Args:
        drawn: bytes for drawing.
    """
    from g2d.rollouts.divergence import AT_ONCE  # imports torch

    rows = max(1, AT_ONCE // (tokens * shape.vocabulary))
    logits = 6 * rows * tokens * shape.vocabulary + 20 * AT_ONCE
    read = 2 * shape.parameters + counted.reading(rows, tokens, adapted=False).peak + logits
    how = f"{shape.parameters:,} x 2 bytes, and the logits of both for {rows} x {tokens} tokens"
    return [Part("M0 beside, beyond these", read - drawn, how)] if read > drawn else []


def cache_columns(tokens: int, graph: bool) -> int:
    """Columns of transformers' cache for sequences of so many tokens."""
    from g2d.rollouts.decode_graph import bucket  # imports torch

    return bucket(tokens) if graph else tokens


@dataclass(frozen=True)
class VllmCache:
    """vLLM's cache of keys and values: what its share of the card leaves after everything else."""

    parts: list[Part]  # everything else
    bytes: int  # below 0 where the share does not even hold the rest
    per_token: int  # bytes
    length: int  # tokens of a prompt and its completion
    wanted: int  # sequences that it would run side by side

    @property
    def sequences(self) -> int:
        """Sequences of full length that it holds."""
        return max(self.bytes, 0) // (self.per_token * self.length)

    def words(self, key: str) -> str:
        """The cache in a sentence, with what to change where it is too small."""
        held = max(self.bytes, 0) // self.per_token
        said = (
            f"vLLM's cache: {max(self.bytes, 0) / GIB:.1f} GiB / {self.per_token:,} bytes = {held:,} tokens, "
            f"{self.sequences:,} sequences of {self.length}"
        )
        if self.sequences < 1:
            return f"{said}: {key} is too small for this card"
        if self.sequences < self.wanted:
            return f"{said} of {self.wanted} side by side if all are that long; the others wait"
        return f"{said}; {self.wanted} side by side are all it would run"


def vllm_limits(memory: int) -> tuple[int, int]:
    """Sequences and tokens of a step that vLLM 0.31 reserves for offline use on a card of so many bytes.

    `EngineArgs.get_batch_defaults`; an A100 of 80 GB has the smaller ones.
    """
    return (1024, 16384) if memory >= 70 * GIB else (256, 8192)


def vllm_cache(
    shape: ModelShape,
    counted: Counted,
    card: Card,
    share: float,
    budget: int,
    *,
    split: int = 1,
    most_sequences: int | None = None,
) -> VllmCache:
    """vLLM's cache where it has a share of the card.

    Args:
        split: cards that the model is split over.
        most_sequences: the most that one request asks for.
    """
    length = card.prompt_tokens + budget
    sequences, batched = vllm_limits(card.memory)
    wanted = sequences if most_sequences is None else min(sequences, most_sequences)
    read = counted.reading(-(-batched // length), length, adapted=False).peak // split
    logits = SAMPLER * 4 * wanted * shape.vocabulary
    parts = [
        Part("weights", 2 * shape.parameters // split, f"{shape.parameters:,} x 2 bytes" + f" / {split}" * (split > 1)),
        *([] if shape.trains_all else [Part("adapter", 2 * shape.adapter // split, f"{shape.adapter:,} x 2 bytes")]),
        Part("largest step", read, f"{batched:,} tokens read at once"),
        Part("sampler", logits, f"{wanted} x {shape.vocabulary:,} x 4 bytes x {SAMPLER}"),
        Part("CUDA graphs", GRAPHS, "assumed"),
    ]
    rest = int(share * card.memory) - sum(part.bytes for part in parts)
    return VllmCache(parts, rest, 2 * shape.cache_per_token // split, length, wanted)
