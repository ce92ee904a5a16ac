"""Scores of a sequence-classification reward model for whole conversations, in batches.

A batch has conversations of similar length, and none that was scored before in this process. Padding is masked: a score
does not depend on the batch, to the precision of the weights (1e-5 in float32; in bfloat16 the last bits differ).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g2d.rewards.reward import UnusableError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Score:
    """A reward model's score of one conversation."""

    value: float  # may be NaN or infinite
    truncated: bool  # whether it was too long and its end was cut off


class Scorer:
    """A reward model in memory: on the GPU in bfloat16 where there is one, else float32.

    Args:
        folder: config.json, safetensors with a head for one label, a tokenizer with a chat template.
        batch_size: conversations in a forward pass.
        max_length: tokens of a conversation that are read; None for as many as the model can.

    Raises:
        UnusableError: the folder cannot be used; the message names it and the fix.
    """

    def __init__(self, folder: str | Path, *, batch_size: int, max_length: int | None = None) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.batch_size = batch_size
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        safe: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
        self.tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            folder, use_safetensors=True, dtype=dtype, output_loading_info=True, **safe
        )
        if missing := sorted(loaded["missing_keys"]):  # transformers would use random numbers
            raise UnusableError(
                f"reward model {folder}: no weights for {missing[0]}: choose one that was saved with its head"
            )
        self.model = model.eval().to(self.device)
        limits = (max_length, self.tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None))
        self.max_length = min((limit for limit in limits if limit is not None), default=None)
        self._has_padding = model.config.pad_token_id is not None
        self._seen: dict[bytes, Score] = {}

    def __call__(self, conversations: Sequence[tuple[str, str]]) -> list[Score]:
        """Scores of (prompt, completion), in their order."""
        names = [hashlib.sha256("\0".join(pair).encode("utf-8", "replace")).digest() for pair in conversations]
        new = {name: pair for name, pair in zip(names, conversations, strict=True) if name not in self._seen}
        whole = dict(zip(new, self._tokens(list(new.values())), strict=True))
        read = {name: tokens[: self.max_length] for name, tokens in whole.items()}
        by_length = sorted(read, key=lambda name: len(read[name]))
        for start in range(0, len(by_length), self.batch_size):
            batch = by_length[start : start + self.batch_size]
            for name, value in zip(batch, self._forward([read[name] for name in batch]), strict=True):
                self._seen[name] = Score(value, len(read[name]) < len(whole[name]))
        return [self._seen[name] for name in names]

    def _tokens(self, conversations: list[tuple[str, str]]) -> list[list[int]]:
        """Conversations in the reward model's own chat template."""
        if not conversations:
            return []
        turns = [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
            for prompt, completion in conversations
        ]
        tokens: list[list[int]] = self.tokenizer.apply_chat_template(turns, return_dict=False)
        return tokens

    def _forward(self, rows: list[list[int]]) -> list[float]:
        import torch

        longest = max(map(len, rows))
        pad = self._padding(rows)
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows], device=self.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self.device)
        with torch.inference_mode():
            scores: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).logits
        return [float(score) for score in scores.float().reshape(len(rows), 1)[:, 0]]

    def _padding(self, rows: list[list[int]]) -> int:
        """The token that pads. Decoders find the end of a text by it; a model that names none gets a token that is in
        none of the texts."""
        config = self.model.config
        if not self._has_padding:
            used = {token for row in rows for token in row}
            config.pad_token_id = next(token for token in range(config.vocab_size) if token not in used)
        return int(config.pad_token_id)
