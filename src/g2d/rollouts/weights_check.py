"""Check that an engine answers with the weights of a policy.

Before vLLM's first completion for a policy, and after each restart, vLLM and transformers compute log-probabilities in
two fixed texts, transformers from the policy's files. The mean absolute difference over the texts' own tokens may be
0.001 nats if both compute in float32. The bound in bfloat16 is 0.15, or four times the effect of rounding: transformers
scores the texts again with embeddings that are changed by a step of bfloat16.

The effect of an adapter can be smaller than that in bfloat16. So its missing share is estimated: 0 for the policy, 1
for M0, -1 for an adapter that is applied twice. It is the slope of the differences from the policy, regressed on the
differences from M0 for all tokens of both texts, and may differ from 0 by 0.75 and four standard errors. An adapter
that changes less than rounding always passes.

Beside a trainer, the engine is compared with the trainer's model at the syncs 1, 4, 16, 64, ... of a process. Other
transformers engines only compare the adapter with its file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import psutil

from g2d.jobs.digests import identity
from g2d.jobs.files import read_json, write_json
from g2d.plain import say
from g2d.policies.record import PolicyRecord, apply_adapter, load_base, precision
from g2d.problems.prompts import conversation_ids, plain_ids
from g2d.rollouts.free_memory import free_unused, gpu_memory

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The texts are short, plain and scored by their own tokens only: between two correct implementations unlikely tokens
# differ most.
TEXTS = (
    ("What is 17 + 25?", "17 + 25 = 42, so the answer is \\boxed{42}."),
    ("Ann has 3 boxes of 12 eggs and gives 5 eggs away. How many are left?", "First, 3 * 12 = 36. Then 36 - 5 = 31."),
)
BOUNDS = {"float32": 1e-3, "bfloat16": 0.15}  # nats per token
ROUNDINGS = 4  # times the rounding of the reference
STEP = 2.0**-7  # of bfloat16, relative
MISSING = 0.75  # share of an adapter's effect
ERRORS = 4  # standard errors
LONGEST = 96  # tokens, so that the texts fit a small context
PREFIXES = 8  # prefixes of each text; vLLM allows 20 scored tokens, so at most 16
ROWS = 64  # rows of a layer that `require_adapter` compares
MEMORY = Path(".snakemake/g2d_scores.json")  # a cache of references


class WrongWeightsError(RuntimeError):
    """An engine answers with other weights than the policy's."""


class ComparedEngine(Protocol):
    name: str

    @property
    def dtype(self) -> str:
        """Type in which it computes, a key of `BOUNDS`."""


class ScoringEngine(ComparedEngine, Protocol):
    def score(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the `log_probabilities` of its policy."""


class Reference(NamedTuple):
    """Log-probabilities of the fixed texts, as `log_probabilities` returns them."""

    policy: list[list[float]]
    base: list[list[float]] | None  # without the adapter; None if the policy has none
    dtype: str
    own: list[int]  # column of the text's next token, for each prefix
    again: list[list[float]]  # of the policy with embeddings changed by a step of bfloat16; unchanged in float32


def fixed_texts(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    texts: list[list[int]] = []
    for question, answer in TEXTS:
        prompt = conversation_ids(tokenizer, [{"role": "user", "content": question}])
        texts.append([*prompt, *plain_ids(tokenizer, answer)][-LONGEST:])
    return texts


def candidates(texts: Sequence[Sequence[int]]) -> list[int]:
    tokens: set[int] = set()
    for text in texts:
        tokens.update(text[-PREFIXES:])
    return sorted(tokens)


def log_probabilities(model: PreTrainedModel, texts: Sequence[Sequence[int]]) -> list[list[float]]:
    """Return log-probabilities of the candidates after the last `PREFIXES` prefixes of each text, a list per prefix."""
    import torch

    scored = candidates(texts)
    scores: list[list[float]] = []
    with torch.no_grad():
        for text in texts:
            logits = model(input_ids=torch.tensor([list(text)], device=model.device)).logits[0, -PREFIXES - 1 : -1]
            scores += logits.float().log_softmax(-1)[:, scored].tolist()
    return scores


def load_reference(policy: PolicyRecord, texts: Sequence[Sequence[int]], *, may_use_gpu: bool) -> Reference | None:
    """Score the texts with the policy loaded by transformers, without using random numbers.

    The GPU is used if it has room, else the CPU; None if memory is too short for both.
    """
    import torch

    device = _device(policy, may_use_gpu)
    if device is None:
        return None
    with torch.random.fork_rng(devices=[]):
        model = load_base(policy).eval().to(device)
        dtype = str(model.dtype).removeprefix("torch.")
        base = None
        if policy.adapter is not None:
            base = log_probabilities(model, texts)
            model = apply_adapter(model, policy.adapter).eval().to(device)
            require_adapter(model, policy)
        reference = _reference(model, texts, base, dtype)
    del model
    if device == "cuda":
        free_unused()
    return reference


def _device(policy: PolicyRecord, may_use_gpu: bool) -> str | None:
    import torch

    need = 2 * sum(file.stat().st_size for file in Path(policy.model_folder).glob("*.safetensors"))
    if may_use_gpu and torch.cuda.is_available() and need <= gpu_memory()[0]:
        return "cuda"
    return "cpu" if need <= psutil.virtual_memory().available else None


def _reference(
    model: PreTrainedModel, texts: Sequence[Sequence[int]], base: list[list[float]] | None, dtype: str
) -> Reference:
    scored = candidates(texts)
    own = [scored.index(token) for text in texts for token in text[-PREFIXES:]]
    policy = log_probabilities(model, texts)
    again = policy
    if dtype == "bfloat16":
        with _rounded_embeddings(model):
            again = log_probabilities(model, texts)
    return Reference(policy, base, dtype, own, again)


@contextmanager
def _rounded_embeddings(model: PreTrainedModel) -> Iterator[None]:
    """Change every embedding by a step of bfloat16, alternately up and down."""
    import torch

    def change(_module: nn.Module, _inputs: object, embeddings: torch.Tensor) -> torch.Tensor:
        steps = torch.full_like(embeddings, STEP)
        steps[..., ::2] = -STEP
        return embeddings * (1 + steps)

    hook = model.get_input_embeddings().register_forward_hook(change)
    try:
        yield
    finally:
        hook.remove()


def is_due(sync: int) -> bool:
    """Return whether a sync, counted from 1, is compared: the powers of 4."""
    return sync & (sync - 1) == 0 and sync.bit_length() % 2 == 1


def trainer_reference(model: PreTrainedModel, texts: Sequence[Sequence[int]], dtype: str) -> Reference:
    """Score the texts with a trainer's model in evaluation mode; it computes in `dtype`."""
    base = None
    if dtype == "bfloat16" and hasattr(model, "disable_adapter"):
        with model.disable_adapter():
            base = log_probabilities(model, texts)
    return _reference(model, texts, base, dtype)


def policy_reference(policy: PolicyRecord, texts: Sequence[Sequence[int]], *, may_use_gpu: bool) -> Reference | None:
    """Return a policy's reference, cached for its other jobs; None if memory is too short to load it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Reference(*read_json(MEMORY)[_key(policy, texts)])
    return _load_and_cache(policy, texts, may_use_gpu=may_use_gpu)


def _load_and_cache(policy: PolicyRecord, texts: Sequence[Sequence[int]], *, may_use_gpu: bool) -> Reference | None:
    reference = load_reference(policy, texts, may_use_gpu=may_use_gpu)
    if reference is None:
        say(f"{policy.policy_id}: not compared with transformers, because memory is short")
    elif MEMORY.parent.is_dir():
        with suppress(OSError, ValueError):
            known = read_json(MEMORY) if MEMORY.is_file() else {}
            write_json(MEMORY, known | {_key(policy, texts): reference})
    return reference


def _key(policy: PolicyRecord, texts: Sequence[Sequence[int]]) -> str:
    files = [*Path(policy.model_folder).iterdir()]
    if policy.adapter:
        files += Path(policy.adapter).iterdir()
    weights = {str(file.resolve()): identity(file) for file in sorted(files) if file.suffix == ".safetensors"}
    return repr((weights, str(precision()), [*map(tuple, texts)]))


def require_policy(
    engine: ScoringEngine, policy: PolicyRecord, texts: Sequence[Sequence[int]], reference: Reference
) -> None:
    """Raise a WrongWeightsError if a vLLM engine does not answer with a policy's weights.

    A cached reference may be of other versions of the packages, so it is loaded again before a job fails.
    """
    name = f"{policy.policy_id} ({policy.trained or policy.base}, weights sha256 {policy.weights_sha256})"
    scores = engine.score(texts)
    try:
        require_same(name, engine, scores, reference)
    except WrongWeightsError:
        loaded = _load_and_cache(policy, texts, may_use_gpu=False)
        require_same(name, engine, scores, loaded or reference)


@contextmanager
def checked(check: Literal["stop", "warn"]) -> Iterator[None]:
    """Print a WrongWeightsError instead of raising it if `check` is warn."""
    try:
        yield
    except WrongWeightsError as error:
        if check == "stop":
            raise
        say(f"warning: {error}", file=sys.stderr)


def require_same(name: str, engine: ComparedEngine, scores: Sequence[Sequence[float]], reference: Reference) -> None:
    """Raise a WrongWeightsError if an engine's scores differ from the reference by more than rounding does."""
    import numpy as np

    expected = np.array(reference.policy)
    errors = np.array(scores) - expected
    own = range(len(errors)), reference.own
    roundings = np.array(reference.again) - expected
    bound = max(BOUNDS[engine.dtype], BOUNDS[reference.dtype], ROUNDINGS * float(np.abs(roundings[own]).mean()))
    of_text = np.abs(errors[own])
    mean = float(of_text.mean())
    missing = 0.0
    error = 0.0
    if reference.base:
        without = np.array(reference.base)
        missing, error = _missing_share(errors, without - expected, without - np.array(reference.again))
    has_adapter = abs(missing) - ERRORS * error <= MISSING
    if mean <= bound and has_adapter:
        return
    share = "" if has_adapter else f", and the adapter has {1 - missing:.0%} of its effect"
    raise WrongWeightsError(
        f"{name}: {engine.name} in {engine.dtype} answers with other weights: its log-probabilities of the tokens of "
        f"fixed texts differ from those of transformers by {mean:.2g} nats on average (bound {bound:.2g}) and by at "
        f"most {of_text.max():.2g}{share}; install the pinned versions, or set engine.name: transformers or other "
        "engine.adapters; if it can only be rounding, engine.check: warn continues"
    )


def _missing_share(errors: np.ndarray, without: np.ndarray, instrument: np.ndarray) -> tuple[float, float]:
    """Regress an engine's differences from the policy on M0's; return the slope and its error, clustered by prefix.

    Both contain the rounding of the policy's log-probabilities, which would bias the slope towards 0.5. The instrument
    is M0's difference from the policy's second scores, which round differently.
    """
    square = float((without * instrument).sum())
    if square <= 0:
        return 0.0, 0.0
    slope = float((errors * instrument).sum()) / square
    by_prefix = (instrument * (errors - slope * without)).sum(axis=1)
    return slope, math.sqrt(float(by_prefix @ by_prefix)) / square


def require_adapter(model: PreTrainedModel, policy: PolicyRecord) -> None:
    """Raise a WrongWeightsError if a model of transformers lacks the policy's adapter in some layer.

    The first rows of each layer are compared with M0's file plus the adapter's file, except layers that M0's file
    stores differently.
    """
    import torch

    from g2d.policies.adapter_rounding import adapted_layers

    if policy.adapter is None:
        return
    layers = dict(model.named_modules())
    for name, stored, a, b, scale in adapted_layers(policy.model_folder, policy.adapter, ROWS):
        layer = layers.get(name)
        linear = getattr(layer, "base_layer", layer)
        if not isinstance(linear, torch.nn.Linear):
            continue
        rows = stored.to(linear.weight.dtype).float()
        expected = scale * b @ a
        error = _effective_rows(layer, linear) - rows - expected
        if not float(error.norm()) <= 0.1 * float(expected.norm()) + 1e-6 * float(rows.norm()):
            raise WrongWeightsError(
                f"{policy.policy_id}: {name} of the loaded model is not M0 plus {policy.adapter} (sha256 "
                f"{policy.weights_sha256}): install the pinned versions of transformers and peft"
            )


def _effective_rows(layer: Any, linear: nn.Linear) -> torch.Tensor:
    """Return the first rows of a layer's weights with its active adapters, in float32 on the CPU."""
    rows = linear.weight[:ROWS].detach().float().cpu()
    if layer is not linear and not layer.merged and not layer.disable_adapters:
        for name in layer.active_adapters:
            a = layer.lora_A[name].weight.detach().float().cpu()
            b = layer.lora_B[name].weight.detach().float().cpu()
            rows = rows + layer.scaling[name] * b[:ROWS] @ a
    return rows
