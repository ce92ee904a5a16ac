"""Check that an engine answers with the weights of a policy.

Before vLLM's first completion for a policy, vLLM and transformers compute the log-probabilities of tokens in two fixed
texts, transformers from the policy's files. The mean absolute difference may be 0.001 nats per token if both compute in
float32, else 0.15.

The effect of an adapter can be smaller than that in bfloat16. So its missing share is estimated: 0 for the policy, 1
for M0. It is the slope of the differences from the policy, regressed on the differences from M0, and must not exceed
0.75 by four standard errors. An adapter that changes less than rounding always passes.

Beside a trainer, the engine is compared with the trainer's model at the syncs 1, 4, 16, 64, ... of a process. Other
transformers engines only compare the adapter with its file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import psutil

from g2d.jobs.digests import identity
from g2d.jobs.files import read_json, write_json
from g2d.plain import say
from g2d.policies.record import PolicyRecord, apply_adapter, load_base, precision
from g2d.problems.prompts import conversation_ids, plain_ids

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TEXTS = (
    ("What is 17 + 25?", "17 + 25 = 42, so the answer is \\boxed{42}."),
    ("Ann has 3 boxes of 12 eggs and gives 5 eggs away. How many are left?", "First, 3 * 12 = 36. Then 36 - 5 = 31."),
)
BOUNDS = {"float32": 1e-3, "bfloat16": 0.15}  # nats per token
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


def load_reference(policy: PolicyRecord, texts: Sequence[Sequence[int]]) -> Reference:
    """Score the texts with the policy loaded by transformers on the CPU, without using random numbers."""
    import torch

    with torch.random.fork_rng(devices=[]):
        model = load_base(policy).eval()
        dtype = str(model.dtype).removeprefix("torch.")
        base = None
        if policy.adapter is not None:
            base = log_probabilities(model, texts)
            model = apply_adapter(model, policy.adapter).eval()
            require_adapter(model, policy)
        return Reference(log_probabilities(model, texts), base, dtype)


def is_due(sync: int) -> bool:
    """Return whether a sync, counted from 1, is compared: the powers of 4."""
    return sync & (sync - 1) == 0 and sync.bit_length() % 2 == 1


def trainer_reference(model: PreTrainedModel, texts: Sequence[Sequence[int]], dtype: str) -> Reference:
    """Score the texts with a trainer's model in evaluation mode; it computes in `dtype`."""
    base = None
    if dtype == "bfloat16" and hasattr(model, "disable_adapter"):
        with model.disable_adapter():
            base = log_probabilities(model, texts)
    return Reference(log_probabilities(model, texts), base, dtype)


def require_policy(engine: ScoringEngine, policy: PolicyRecord, texts: Sequence[Sequence[int]]) -> None:
    """Raise a WrongWeightsError if a vLLM engine does not answer with a policy's weights.

    The reference is cached for the policy's other jobs, and loaded again before a job fails. Nothing is compared if
    memory is too short to load it.
    """
    files = [*Path(policy.model_folder).iterdir()]
    if policy.adapter:
        files += Path(policy.adapter).iterdir()
    weights = {str(file.resolve()): identity(file) for file in sorted(files) if file.suffix == ".safetensors"}
    key = repr((weights, str(precision()), [*map(tuple, texts)]))
    name = f"{policy.policy_id} ({policy.trained or policy.base}, weights sha256 {policy.weights_sha256})"
    scores = engine.score(texts)
    with suppress(OSError, ValueError, KeyError, TypeError, WrongWeightsError):
        require_same(name, engine, scores, Reference(*read_json(MEMORY)[key]))
        return
    if 2 * sum(size for _, size, *_ in weights.values()) > psutil.virtual_memory().available:
        say(f"{name}: not compared with transformers, because memory is short")
        return
    reference = load_reference(policy, texts)
    require_same(name, engine, scores, reference)
    if MEMORY.parent.is_dir():
        with suppress(OSError, ValueError):
            known = read_json(MEMORY) if MEMORY.is_file() else {}
            write_json(MEMORY, known | {key: reference})


def require_same(name: str, engine: ComparedEngine, scores: Sequence[Sequence[float]], reference: Reference) -> None:
    """Raise a WrongWeightsError if an engine's scores differ from the reference by more than rounding does."""
    import numpy as np

    expected = np.array(reference.policy)
    errors = np.array(scores) - expected
    bound = max(BOUNDS[engine.dtype], BOUNDS[reference.dtype])
    mean = float(np.abs(errors).mean())
    missing = 0.0
    error = 0.0
    if reference.base:
        missing, error = _missing_share(errors, np.array(reference.base) - expected)
    if mean <= bound and missing - ERRORS * error <= MISSING:
        return
    share = f", and {missing:.0%} of the adapter's effect is missing" if missing > MISSING else ""
    raise WrongWeightsError(
        f"{name}: {engine.name} in {engine.dtype} answers with other weights: its log-probabilities of fixed texts "
        f"differ from those of transformers by {mean:.2g} nats per token (bound {bound:g}) and by at most "
        f"{np.abs(errors).max():.2g}{share}; set engine.name: transformers, or change engine.adapters, and delete what "
        "this version of the engine has generated"
    )


def _missing_share(errors: np.ndarray, without: np.ndarray) -> tuple[float, float]:
    """Regress an engine's differences from the policy on M0's; return the slope and its error, clustered by prefix."""
    square = float((without**2).sum())
    if square == 0:
        return 0.0, 0.0
    slope = float((errors * without).sum()) / square
    by_prefix = (without * (errors - slope * without)).sum(axis=1)
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
