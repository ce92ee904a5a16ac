"""Reward models with random weights, for tests that need real ones and no ability; milliseconds each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from g2d.rewards.reward import Context, Judgement

SEED = int(os.environ.get("G2D_TEST_SEED", "0"))
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</s>{% endfor %}"
SIZE = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
}


def reward_model(folder: Path, kind: str = "Llama", *, labels: int = 1, padding: bool = True, **shape: Any) -> Path:
    """Leave a sequence-classification model of a kind of transformers', and a tokenizer of bytes, in a folder."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<pad>", "</s>", "<user>", "<assistant>", *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<pad>", "</s>", "<user>", "<assistant>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(SEED)
    shape = {"vocab_size": len(vocabulary), "max_position_embeddings": 256, "num_labels": labels, **SIZE, **shape}
    config = getattr(transformers, f"{kind}Config")(**shape, pad_token_id=0 if padding else None)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


CONTEXT = Context(0, "training")


def rewards_of(judgements: Sequence[Judgement]) -> list[float | None]:
    return [judgement.reward for judgement in judgements]
