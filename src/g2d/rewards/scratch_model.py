"""The embedded reward model: a tiny BERT, trained from scratch in about 20 CPU seconds.

Its judge has a length bias by default, so policies learn longer replies without more politeness: reward hacking.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from g2d.plain import say
from g2d.problems.replies import draw_preference, vocabulary_texts
from g2d.rewards import model
from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, Seed, key

FOLDER = "results/reward-models"
TRAINED_WITH = {"seed", "steps", "length_bias"}
OPTIONS = {"seed": int, "length_bias": float}  # command-line options

POSITIONS = 256
BATCH_SIZE = 32  # preferences
HIDDEN_SIZE = 32
LEARNING_RATE = 1e-3
WORD = r"[A-Za-z]+|\d|[^\sA-Za-z\d]"
TEMPLATE = "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} {% endfor %}<end>"
SPECIAL = ("<pad>", "<unk>", "<user>", "<assistant>", "<end>")


class ScratchRewardModel(Section):
    """Score of a tiny reward model that the workflow trains, with a length bias."""

    reward: Literal["scratch_model"] = key(..., "Reward by the embedded reward model's score.")
    seed: Seed = key(0, "Seed of weights and preferences.")
    steps: int = key(300, "Optimiser steps, with 32 preferences each.", ge=1)
    length_bias: float = key(1.0, "Value of an empty sentence; a degree of politeness is worth 2.", ge=0)
    length_penalty: float = key(0.0, "Penalty per 1,000 characters of a completion, against length bias.", ge=0)

    @property
    def trained_with(self) -> dict[str, Any]:
        return self.params(only=TRAINED_WITH)

    @property
    def name(self) -> str:
        """Entries of `rewards` that differ in other keys share one model."""
        return hashlib.sha256(json.dumps(self.trained_with, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def files(self) -> list[str]:
        names = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
        return [f"{FOLDER}/{self.name}/{name}" for name in names]


def score(settings: ScratchRewardModel, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    if not attempts:
        return []
    folder = str(Path(settings.files[0]).parent)
    in_folder = model.RewardModel(reward="model", path=folder, length_penalty=settings.length_penalty)
    return model.score(in_folder, attempts, context)


def _words(settings: ScratchRewardModel) -> str:
    bias = f"length bias {settings.length_bias:g}" if settings.length_bias else "no length bias"
    return f"scores of the embedded reward model ({bias})" + model.less_length(settings.length_penalty)


SCRATCH_MODEL = Reward(
    name="scratch_model",
    version=1,
    settings=ScratchRewardModel,
    score=score,
    words=_words,
    binary=False,
    needs_reference=False,
    files=lambda settings: settings.files[:1],
)


def train_scratch_reward(settings: ScratchRewardModel, folder: Path) -> None:
    """Train with the Bradley-Terry loss, -log sigmoid(score of the chosen - score of the rejected reply), and save."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    tokenizer = build_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN_SIZE,
        intermediate_size=2 * HIDDEN_SIZE,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForSequenceClassification(config)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # faster for such a small model
    try:
        _learn(model, tokenizer, settings, rng)
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _learn(model: Any, tokenizer: Any, settings: ScratchRewardModel, rng: random.Random) -> None:
    import torch
    from torch.nn.functional import logsigmoid

    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    for step in range(settings.steps):
        drawn = [draw_preference(rng, settings.length_bias) for _ in range(BATCH_SIZE)]
        pairs = [(p.prompt, p.chosen.text) for p in drawn] + [(p.prompt, p.rejected.text) for p in drawn]
        turns = [[{"role": "user", "content": a}, {"role": "assistant", "content": b}] for a, b in pairs]
        batch = tokenizer.apply_chat_template(turns, padding=True, return_tensors="pt", return_dict=True)
        scores = model(**batch).logits[:, 0]
        loss = -logsigmoid(scores[: len(drawn)] - scores[len(drawn) :]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == settings.steps - 1:
            say(f"step {step + 1}/{settings.steps} loss {loss.item():.3f}")


def build_tokenizer() -> Any:
    """Words that no reply has become <unk>."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(WORD), "isolated")]
    )
    words = sorted({word for text in vocabulary_texts() for word, _ in splitter.pre_tokenize_str(text)})
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*SPECIAL, *words])}, unk_token="<unk>"))
    inner.pre_tokenizer = splitter
    inner.add_special_tokens(list(SPECIAL))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", model_max_length=POSITIONS
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser("reward-model", help="train a tiny reward model into a folder")
    parser.add_argument("folder", type=Path, help="for `rewards: {polite: {reward: model, path: FOLDER}}`")
    for name, kind in OPTIONS.items():
        field = ScratchRewardModel.model_fields[name]
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=kind, default=field.default, help=field.description)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.folder.exists() and any(arguments.folder.iterdir()):
        raise ValueError(f"{arguments.folder} is not empty: name another folder, or delete it")
    given = {name: getattr(arguments, name) for name in OPTIONS}
    train_scratch_reward(ScratchRewardModel(reward="scratch_model").model_copy(update=given), arguments.folder)
    return 0
