"""The embedded demonstration model: a tiny Llama in Hugging Face format, trained in about a minute of CPU.

Its corpus is made so that online RL can improve it (`g2d.problems.corpus`), so its numbers are a demonstration and not
evidence.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from g2d.plain import say
from g2d.policies.muon import Muon
from g2d.policies.settings import CONTEXT_LENGTH, ScratchModel
from g2d.problems.corpus import corpus_document, reply_document, reply_texts, vocabulary_texts
from g2d.problems.prompts import render

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A word with its space, a number of at most two digits, a punctuation mark: each is one token.
TOKEN = Regex(r"\\boxed| ?[A-Za-z]+| ?\d{1,2}| ?[^\sA-Za-z\d]|\s")

MATRIX_LEARNING_RATE = 0.02  # Muon, for the matrices
OTHER_LEARNING_RATE = 2e-3  # AdamW, for embeddings and norms
WARMUP_STEPS = 30
# A tiny model is underconfident: sharper logits make temperature 1.3 comparable with that of a large one.
LOGIT_SCALE = 1.9


def build_tokenizer(replies: bool = False) -> PreTrainedTokenizerFast:
    """A word-level tokenizer over the closed vocabulary of the synthetic families, with or without replies."""
    splitter = pre_tokenizers.Split(TOKEN, "isolated")
    texts = [*vocabulary_texts(), *(reply_texts() if replies else ()), "user\n", "assistant\n", "system\n"]
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


def train_scratch(settings: ScratchModel, out: Path) -> None:
    """Train the model and save weights (safetensors), configuration and tokenizer to a folder.

    Deterministic in `settings` on one machine, whatever the number of threads.
    """
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    tokenizer = build_tokenizer(replies=settings.replies > 0)
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
        documents = draw_documents(tokenizer, rng, settings.batch_size, settings.replies)
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
    """Muon for matrices, which needs a third of AdamW's steps; AdamW for embeddings and norms."""
    parameters = dict(model.named_parameters())
    matrices = [name for name, p in parameters.items() if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in parameters.items() if name not in matrices]
    of_matrices = {"lr": MATRIX_LEARNING_RATE, "weight_decay": 0.05, "momentum": 0.95}
    make = Muon if muon == "float32" else partial(torch.optim.Muon, adjust_lr_fn="original")
    return [
        make([parameters[name] for name in matrices], **of_matrices),
        torch.optim.AdamW(others, lr=OTHER_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def _learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then cosine decay to 2 % of the peak, as a factor."""
    return min(1.0, (step + 1) / WARMUP_STEPS) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


Document = tuple[list[int], list[int]]  # tokens of the prompt, which have no loss, and of the completion


def draw_documents(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, size: int, replies: float = 0.0
) -> list[Document]:
    """Draw documents of the corpus, a share of them replies."""
    documents = [
        reply_document(rng) if replies and rng.random() < replies else corpus_document(rng) for _ in range(size)
    ]
    prompts = [_render_prompt(tokenizer, prompt) for prompt, _ in documents]
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    completions = [completion + tokenizer.eos_token for _, completion in documents]
    completion_ids = tokenizer(completions, add_special_tokens=False)["input_ids"]
    return list(zip(prompt_ids, completion_ids, strict=True))


def _render_prompt(tokenizer: PreTrainedTokenizerFast, prompt: str) -> str:
    """The prompt in the chat template; a drill has none and starts at the assistant's turn."""
    if not prompt:
        return "<|im_start|>assistant\n"
    return render(tokenizer, [{"role": "user", "content": prompt}])


def backward(model: LlamaForCausalLM, documents: Sequence[Document], padding: int, group: int | None) -> float:
    """Gradients of the mean cross-entropy of all tokens of the completions, which is returned.

    Args:
        padding: the token that pads.
        group: documents per forward pass, of similar length; None: all of them.
    """
    if group is not None:
        documents = sorted(documents, key=lambda document: sum(map(len, document)))
    n_tokens = sum(len(completion) for _, completion in documents)
    total = 0.0
    for start in range(0, len(documents), group or len(documents)):
        part = documents[start : start + (group or len(documents))]
        share = sum(len(completion) for _, completion in part) / n_tokens
        loss = _loss(model, _batch(part, padding)) * share
        loss.backward()
        total += loss.item()
    return total


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _batch(documents: Sequence[Document], padding: int) -> Batch:
    """Token ids, labels (-100 on the prompt) and attention mask, each (documents, length), padded on the right."""
    shape = len(documents), max(len(prompt) + len(completion) for prompt, completion in documents)
    ids, labels, mask = torch.full(shape, padding), torch.full(shape, -100), torch.zeros(shape, dtype=torch.long)
    for row, (prompt, completion) in enumerate(documents):
        end = len(prompt) + len(completion)
        ids[row, :end] = torch.tensor(prompt + completion)
        labels[row, len(prompt) : end] = torch.tensor(completion)
        mask[row, :end] = 1
    return ids, labels, mask


def _loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Cross-entropy of the completions; logits are computed for labels alone."""
    ids, labels, mask = batch
    hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    scored = targets != -100
    return F.cross_entropy(model.lm_head(hidden[scored]), targets[scored])
