"""The embedded reward model as a reward, which a rule of the workflow trains from scratch.

Its folder is named by a digest of what it is trained with, so entries of `rewards` that differ in other keys share one
model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from g2d.rewards import model
from g2d.rewards.reward import Attempt, Context, Judgement, Reward
from g2d.settings import Section, Seed, key

FOLDER = "results/reward-models"
TRAINED_WITH = {"seed", "steps", "length_bias"}


class ScratchRewardModel(Section):
    """The score of a tiny model that the workflow trains from scratch to judge replies, with a length bias built in."""

    reward: Literal["scratch_model"] = key(..., "Reward by the embedded reward model's score.")
    seed: Seed = key(0, "Seed of its weights and of the preferences it is trained on.")
    steps: int = key(300, "Optimiser steps, of 32 preferences each.", ge=1)
    length_bias: float = key(
        1.0, "What a sentence that says nothing is worth to its judge; a degree of politeness is worth 2.", ge=0
    )
    length_penalty: float = key(0.0, "As for `model`.", ge=0)

    @property
    def trained_with(self) -> dict[str, Any]:
        """The keys that its weights depend on."""
        return self.params(only=TRAINED_WITH)

    @property
    def name(self) -> str:
        """Name of its folder."""
        return hashlib.sha256(json.dumps(self.trained_with, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def files(self) -> list[str]:
        """Its files, the weights first."""
        names = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
        return [f"{FOLDER}/{self.name}/{name}" for name in names]


def score(settings: ScratchRewardModel, attempts: Sequence[Attempt], context: Context) -> list[Judgement]:
    """As any reward model in a folder."""
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
