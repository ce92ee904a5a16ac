"""A reward model: any sequence-classification model in Hugging Face format with one label, from a folder or the Hub.

"Bridging Offline and Online RL" (arXiv 2506.21495, section 3.1) uses Athene-RM-8B, whose class is code in its
repository, which is not run here; docs/rewards.md names a model of the same size instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal

from pydantic import model_validator

from g2d.rewards import model_files
from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.rewards.scoring import Score, Scorer
from g2d.settings import MistakeInKeyError, Revision, Section, key


class RewardModel(Section):
    """The score of a sequence-classification model with one label, which reads the question and the completion."""

    reward: Literal["model"] = key(..., "Reward by a model's score.")
    path: str | None = key(None, "Its folder, relative to the working directory; or else id and revision.")
    id: str | None = key(None, "Its repository on the Hub.")
    revision: Revision | None = key(None, "Commit hash, so that the weights cannot change under a finished grid.")
    batch_size: int = key(16, "Conversations in a forward pass.", ge=1)
    max_length: int | None = key(
        None, "Tokens of a conversation that it reads; the rest is cut off and counted. null: as many as it can.", ge=1
    )

    length_penalty: float = key(
        0.0,
        "Points taken off the score for 1,000 characters of a completion: against length bias.",
        ge=0,
        neutral=0.0,
    )

    @model_validator(mode="after")
    def _folder_or_hub(self) -> RewardModel:
        if (self.path is None) == (self.id is None):
            raise MistakeInKeyError("path", "give a folder here, or id and revision instead")
        if self.id is not None and self.revision is None:
            raise MistakeInKeyError("revision", f"missing: add the commit hash of {self.id} that is meant")
        if self.path is not None and self.revision is not None:
            raise MistakeInKeyError("revision", "a folder has none: remove this key")
        return self

    @property
    def label(self) -> str:
        """Its name in a sentence."""
        return self.id or str(self.path)


def score(settings: RewardModel, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """Its scores, less the length penalty; details have the score, and whether the end of a completion was cut off."""
    scores = scorer(settings)([(attempt.problem.prompt, attempt.text) for attempt in attempts])
    return [_judgement(settings, attempt, found) for attempt, found in zip(attempts, scores, strict=True)]


def _judgement(settings: RewardModel, attempt: Attempt, found: Score) -> Judgement:
    details: dict[str, float | bool] = {"truncated": True} if found.truncated else {}
    if not settings.length_penalty:
        return Judgement(found.value, details=details)
    if math.isfinite(found.value):  # JSON has no other numbers
        details["score"] = found.value
    return Judgement(found.value - settings.length_penalty * len(attempt.text) / 1000, details=details)


def less_length(penalty: float) -> str:
    """The length penalty in words."""
    return f", less {penalty:g} per 1,000 characters" if penalty else ""


@cache
def scorer(settings: RewardModel) -> Scorer:
    """The model in memory, loaded once per process.

    Raises:
        UnusableError: the model cannot be used; the message names it and the fix.
    """
    folder = settings.path
    if folder is None:
        from huggingface_hub import snapshot_download

        assert settings.id is not None
        folder = snapshot_download(settings.id, revision=settings.revision, allow_patterns=[*model_files.PATTERNS])
    return Scorer(folder, batch_size=settings.batch_size, max_length=settings.max_length)


MODEL = Reward(
    name="model",
    version=1,
    settings=RewardModel,
    score=score,
    words=lambda settings: f"scores of the reward model {settings.label}" + less_length(settings.length_penalty),
    binary=False,
    needs_reference=False,
    gpu=True,
    content=lambda settings: None if settings.path is None else model_files.content(settings.path),
    mistake=lambda settings: None if settings.path is None else model_files.mistake(settings.path, settings.max_length),
)
