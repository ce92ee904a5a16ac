"""A reward model: any Hugging Face sequence-classification model with one label.

Models whose class is code in their repository or model card, as Athene-RM-8B in arXiv 2506.21495, are not run
(docs/rewards.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from g2d.jobs.digests import remembered_digest
from g2d.jobs.files import does_not_exist, parse_json, read_json, text_value
from g2d.jobs.model_folder import attention_of, has_chat_template, hide_progress, mistake_in_weights
from g2d.problems.prompts import CLOCK, DATE, conversation_ids, render, require_finite, with_values
from g2d.rewards.reward import Context, Judgement, Reward, UnusableError, VerifiedCompletion
from g2d.settings import MistakeInKeyError, Revision, Section, key

if TYPE_CHECKING:
    import torch


FIXED_DATE = "26 Jul 2024"  # the date in Llama's chat templates if there is no clock


class RewardModel(Section):
    """Score of a sequence-classification model with one label, given question and completion."""

    reward: Literal["model"] = key(..., "Reward by a model's score.")
    path: str | None = key(None, "Folder of the model, instead of id and revision.")
    id: str | None = key(None, "Repository id on the Hub.")
    revision: Revision | None = key(None, "Commit hash of the weights.")
    batch_size: int = key(16, "Conversations per forward pass.", ge=1)
    max_length: int | None = key(None, "Tokens at which conversations are cut; null: the model's limit.", ge=1)

    @model_validator(mode="after")
    def _folder_or_hub(self) -> RewardModel:
        if (self.path is None) == (self.id is None):
            raise MistakeInKeyError("path", "give a folder here, or id and revision instead")
        if self.id is not None and self.revision is None:
            raise MistakeInKeyError("revision", f"missing: add the commit hash of {self.id}")
        if self.path is not None and self.revision is not None:
            raise MistakeInKeyError("revision", "a folder has none: remove this key")
        return self

    @property
    def label(self) -> str:
        return self.id or str(self.path)


def score(settings: RewardModel, completions: Sequence[VerifiedCompletion], context: Context) -> list[Judgement]:
    import torch

    conversations = [(completion.problem.prompt, completion.text) for completion in completions]
    try:
        scores = scorer(settings)(conversations)
    except torch.OutOfMemoryError as error:  # smaller passes of a training would not help
        raise UnusableError(
            f"reward model {settings.label}: out of memory: lower its batch_size or, with vLLM, "
            "engine.training_gpu_memory_utilization (in a harvest engine.gpu_memory_utilization), or use a card with "
            "more memory"
        ) from error
    judgements = []
    for found in scores:
        details: dict[str, float | bool] = {}
        if found.truncated:
            details["truncated"] = True
        judgements.append(Judgement(found.value, details=details))
    return judgements


@cache
def scorer(settings: RewardModel) -> Scorer:
    folder = folder_of(settings)
    reason = mistake_in(folder, settings.max_length)
    if reason is not None:
        raise UnusableError(f"reward model {reason}")
    return Scorer(folder, batch_size=settings.batch_size, max_length=settings.max_length)


def folder_of(settings: RewardModel) -> str:
    if settings.path is not None:
        return settings.path
    from huggingface_hub import snapshot_download

    return str(snapshot_download(settings.label, revision=settings.revision, allow_patterns=[*PATTERNS]))


# Other files, such as pickled weights and modules, can run code on loading.
PATTERNS = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")


def digest(folder: str | Path) -> str:
    """Read the weights in full: a new head changes few bytes."""
    files: list[Path] = []
    for pattern in PATTERNS:
        files += Path(folder).glob(pattern)
    lines = [f"{remembered_digest(file)}  {file.name}\n" for file in sorted(files) if file.is_file()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def mistake_in(folder: str | Path, max_length: int | None) -> str | None:
    folder = Path(folder)
    if not folder.exists():
        return does_not_exist(str(folder))
    if not folder.is_dir():
        return f"{folder} is no folder: name one with config.json, safetensors and a tokenizer"
    try:
        config = dict(parse_json((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        return f"{folder}: its config.json cannot be read ({str(error).splitlines()[0]}): put a complete copy there"
    if not any(folder.glob("*.safetensors")):
        return f"{folder}: no *.safetensors in it, and pickled weights are not loaded: convert it with save_pretrained"
    mistake = mistake_in_weights(folder)
    if mistake is not None:
        return mistake
    if "AutoModelForSequenceClassification" in (config.get("auto_map") or {}):
        return (
            f"{folder}: its class comes with the model, and no such code is run: choose one of a class of transformers"
        )
    architectures = config.get("architectures") or ()
    if not any(name.endswith("ForSequenceClassification") for name in architectures):
        made = ", ".join(architectures) or "nothing"
        return f"{folder}: made for {made}, not for sequence classification: choose a reward model"
    labels = len(config.get("id2label") or ()) or int(config.get("num_labels", 2))  # same rule as transformers
    if labels != 1:
        return f"{folder}: {labels} labels instead of 1, so there is no one score: choose a reward model"
    if not has_chat_template(folder):
        return f"{folder}: its tokenizer has no chat template: add the one it was trained with, as chat_template.jinja"
    limit = text_value(config, "max_position_embeddings")
    if max_length is not None and limit is not None and max_length > limit:
        return f"{folder}: reads {limit} tokens at most, not {max_length}: lower max_length"
    return None


@dataclass(frozen=True, slots=True)
class Score:
    value: float  # may be NaN or infinite
    truncated: bool  # the end was cut off


class Scorer:
    """A reward model in memory; an UnusableError if weights are missing."""

    def __init__(self, folder: str | Path, *, batch_size: int, max_length: int | None = None) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.batch_size = batch_size
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        safe = {"trust_remote_code": False, "local_files_only": True}
        self.tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
        hide_progress()
        template = self.tokenizer.get_chat_template()
        if CLOCK in template:  # scores must not depend on the day
            self.tokenizer.chat_template = with_values(template, {DATE: FIXED_DATE})
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            folder,
            use_safetensors=True,
            dtype=dtype,
            attn_implementation=attention_of(read_json(Path(folder, "config.json"))),
            output_loading_info=True,
            **safe,
        )
        missing = sorted(loaded["missing_keys"])
        if missing:  # transformers would initialise them at random
            raise UnusableError(
                f"reward model {folder}: no weights for {missing[0]}: choose one that was saved with its head"
            )
        self.model = model.eval().to(self.device)
        model.config.get_text_config().use_cache = False  # keys and values of all tokens
        window = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        limits = [self.tokenizer.model_max_length]
        if max_length is not None:
            limits.append(max_length)
        if window is not None:
            limits.append(window)
        self.max_length: int = min(limits)
        self._has_padding = model.config.pad_token_id is not None
        self._seen: dict[bytes, Score] = {}

    def __call__(self, conversations: Sequence[tuple[str, str]]) -> list[Score]:
        names = []
        new: dict[bytes, list[int]] = {}
        for prompt, completion in conversations:
            name = hashlib.sha256(f"{prompt}\0{completion}".encode("utf-8", "replace")).digest()
            names.append(name)
            if name not in self._seen and name not in new:
                new[name] = self._tokens(prompt, completion)
        by_length = sorted(new, key=lambda name: min(len(new[name]), self.max_length))
        for start in range(0, len(by_length), self.batch_size):
            batch = by_length[start : start + self.batch_size]
            values = self._forward([new[name][: self.max_length] for name in batch])
            for name, value in zip(batch, values, strict=True):
                self._seen[name] = Score(value, truncated=len(new[name]) > self.max_length)
        return [self._seen[name] for name in names]

    def _tokens(self, prompt: str, completion: str) -> list[int]:
        return conversation_ids(self.tokenizer, _turns(prompt, completion), add_generation_prompt=False)

    def _forward(self, rows: list[list[int]]) -> list[float]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        config = self.model.config
        if not self._has_padding:  # decoders find the end of a text by this token, so no row may contain it
            used = set().union(*rows)
            config.pad_token_id = next(token for token in range(config.vocab_size) if token not in used)
        every = [torch.tensor(row) for row in rows]
        ids = pad_sequence(every, batch_first=True, padding_value=config.pad_token_id).to(self.device)
        mask = pad_sequence([torch.ones_like(row) for row in every], batch_first=True).to(self.device)
        with torch.inference_mode():
            scores: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).logits
        values: list[float] = scores.float().reshape(len(rows)).tolist()
        return values


def require_template(folder: str | Path) -> None:
    """Raise a ValueError if the chat template cannot be used; a worker process with limits renders it first."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    turns = _turns("What is 2 + 2?", "It is 4.")
    require_finite(tokenizer, turns, add_generation_prompt=False)
    conversation_ids(tokenizer, turns, add_generation_prompt=False)
    text = render(tokenizer, turns, add_generation_prompt=False)
    dropped = [turn["role"] for turn in turns if turn["content"] not in text]
    if dropped:
        raise ValueError(
            f"the chat template drops the {dropped[0]} message: use the one that the model was trained with"
        )


def _turns(prompt: str, completion: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]


def _words(settings: RewardModel) -> str:
    return f"scores of the reward model {settings.label}"


def _content(settings: RewardModel) -> str | None:
    if settings.path is None:
        return None
    return digest(settings.path)


def _mistake(settings: RewardModel) -> str | None:
    if settings.path is None:
        return None
    return mistake_in(settings.path, settings.max_length)


MODEL = Reward(
    name="model",
    version=1,
    settings=RewardModel,
    score=score,
    words=_words,
    binary=False,
    needs_reference=False,
    gpu=True,
    content=_content,
    mistake=_mistake,
)
