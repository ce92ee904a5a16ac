"""Training of the demonstration model: a tiny Llama, in about a minute on a CPU.

Its corpus leaves room for online RL on purpose, so its results are no evidence.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.corpus import corpus_document, vocabulary_texts
from g2d.plain import say
from g2d.policies.model_keys import CONTEXT_LENGTH
from g2d.problems.prompts import render, token_ids

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A word with its space, a number of at most two digits, or a punctuation mark.
TOKEN = Regex(r"\\boxed| ?[A-Za-z]+| ?\d{1,2}| ?[^\sA-Za-z\d]|\s")

MATRIX_LEARNING_RATE = 0.02  # Muon, for matrices
OTHER_LEARNING_RATE = 2e-3  # AdamW, for embeddings and norms
WARMUP_STEPS = 30
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Keller Jordan's quintic, kellerjordan.github.io/posts/muon
ITERATIONS = 5
# A tiny model is underconfident; sharper logits make temperature 1.3 comparable with a large model's.
LOGIT_SCALE = 1.9


@dataclass(frozen=True)
class Recipe:
    steps: int = 400
    batch_size: int = 64  # documents per step
    hidden_size: int = 128
    layers: int = 2
    heads: int = 4
    seed: int = 0  # of weights and corpus
    muon: Literal["bfloat16", "float32"] = "bfloat16"  # float32 is ten times as fast on a CPU
    length_group: int | None = None  # documents per forward pass; None: all of a step


def build_tokenizer() -> PreTrainedTokenizerFast:
    splitter = pre_tokenizers.Split(TOKEN, "isolated")
    texts = [*vocabulary_texts(), "user\n", "assistant\n", "system\n"]
    words = sorted({word for text in texts for word, _ in splitter.pre_tokenize_str(text)})
    special = ["<pad>", "<|im_end|>", "<|im_start|>", "<unk>"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *words])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>"],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_LENGTH,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def train_scratch(settings: Recipe, out: Path) -> None:
    """Train and save the model; on one machine, it depends only on `settings`."""
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    tokenizer = build_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=settings.hidden_size,
            intermediate_size=3 * settings.hidden_size,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.heads,
            max_position_embeddings=CONTEXT_LENGTH,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    say(f"{sum(p.numel() for p in model.parameters()):,} parameters, vocabulary of {len(tokenizer)}")
    optimizers = _optimizers(model, settings.muon)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate(step, settings.steps))
        for optimizer in optimizers
    ]
    for step in range(settings.steps):
        documents = draw_documents(tokenizer, rng, settings.batch_size)
        loss = backward(model, documents, tokenizer.pad_token_id, settings.length_group)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step == settings.steps - 1:
            say(f"step {step + 1}/{settings.steps} loss {loss:.4f}")
    with torch.no_grad():
        model.model.norm.weight.mul_(LOGIT_SCALE)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _optimizers(model: LlamaForCausalLM, muon: Literal["bfloat16", "float32"]) -> list[torch.optim.Optimizer]:
    parameters = dict(model.named_parameters())
    matrices = [name for name, p in parameters.items() if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in parameters.items() if name not in matrices]
    of_matrices = {"lr": MATRIX_LEARNING_RATE, "weight_decay": 0.05, "momentum": 0.95}
    make = Muon if muon == "float32" else partial(torch.optim.Muon, adjust_lr_fn="original")
    return [
        make([parameters[name] for name in matrices], **of_matrices),
        torch.optim.AdamW(others, lr=OTHER_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    ]


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` with Nesterov momentum and `adjust_lr_fn="original"`, in float32.

    On a CPU without bfloat16 it takes 10 instead of 60 % of a training of M0.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], *, lr: float, weight_decay: float, momentum: float
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            of_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                of_shape[parameter.shape].append(parameter)
            for (rows, columns), matrices in of_shape.items():
                gradients = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
                average = self.state[matrices[0]].setdefault("average", torch.zeros_like(gradients))
                average.lerp_(gradients, 1 - group["momentum"])
                updates = orthogonalised(gradients.lerp_(average, group["momentum"]))
                rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """Move the singular values of matrices (n, rows, columns) close to 1 (Newton-Schulz)."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # singular values at most 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _learning_rate(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / WARMUP_STEPS) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


Document = tuple[list[int], list[int]]  # tokens: prompt (without loss), completion


def draw_documents(tokenizer: PreTrainedTokenizerFast, rng: random.Random, size: int) -> list[Document]:
    documents = [corpus_document(rng) for _ in range(size)]
    prompts = [  # a drill starts at the assistant's turn
        render(tokenizer, [{"role": "user", "content": prompt}]) if prompt else "<|im_start|>assistant\n"
        for prompt, _ in documents
    ]
    completions = [completion + tokenizer.eos_token for _, completion in documents]
    return list(zip(token_ids(tokenizer, prompts), token_ids(tokenizer, completions), strict=True))


def backward(model: LlamaForCausalLM, documents: Sequence[Document], padding: int, group: int | None) -> float:
    """Accumulate gradients of the mean cross-entropy over completion tokens, and return the loss.

    Each forward pass has `group` documents of similar length.
    """
    if group is not None:
        documents = sorted(documents, key=lambda document: sum(map(len, document)))
    n_tokens = sum(len(completion) for _, completion in documents)
    total = 0.0
    for start in range(0, len(documents), group or len(documents)):
        part = documents[start : start + (group or len(documents))]
        share = sum(len(completion) for _, completion in part) / n_tokens
        loss = _loss(model, part, padding) * share
        loss.backward()
        total += loss.item()
    return total


def _loss(model: LlamaForCausalLM, documents: Sequence[Document], padding: int) -> torch.Tensor:
    tokens = [torch.tensor(prompt + completion) for prompt, completion in documents]
    ids = pad_sequence(tokens, batch_first=True, padding_value=padding)
    mask = pad_sequence([torch.ones_like(own) for own in tokens], batch_first=True)
    scored = mask.bool()
    for row, (prompt, _) in enumerate(documents):
        scored[row, : len(prompt)] = False
    hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state
    return F.cross_entropy(model.lm_head(hidden[:, :-1][scored[:, 1:]]), ids[:, 1:][scored[:, 1:]])
