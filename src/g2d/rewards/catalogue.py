"""The catalogue: every reward of the package. What may stand in a configuration, versions and words are looked up here;
nothing elsewhere tells rewards apart by their names.

To add one, see CONTRIBUTING.md: a module with its settings, and a line below.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from g2d.rewards.format import FORMAT
from g2d.rewards.majority import MAJORITY
from g2d.rewards.math_verify import MATH_VERIFY, MathVerify
from g2d.rewards.model import MODEL
from g2d.rewards.plugin import Plugin
from g2d.rewards.random import RANDOM
from g2d.rewards.reward import Reward
from g2d.rewards.wrong import WRONG
from g2d.settings import Section

REWARDS: dict[str, Reward] = {reward.name: reward for reward in (MATH_VERIFY, RANDOM, FORMAT, WRONG, MAJORITY, MODEL)}

AnyReward: Any = Annotated[
    reduce(or_, [*(reward.settings for reward in REWARDS.values()), Plugin]), Field(discriminator="reward")
]

_SETTINGS: TypeAdapter[Any] = TypeAdapter(AnyReward)


TRUTH = MathVerify(reward="math_verify")  # what judges where no other reward is named


def reward_of(settings: Section) -> tuple[Reward, Section]:
    """The reward that an entry of `rewards` names, and its own settings."""
    if isinstance(settings, Plugin):
        return settings.plugin, settings.own_settings
    return REWARDS[settings.reward], settings  # type: ignore[attr-defined]


def words_of(settings: Section) -> str:
    """What a reward is called in a sentence."""
    reward, own = reward_of(settings)
    return reward.words(own)


ADDED = ("version", "content")  # to a reward's own keys


def reward_params(settings: Section) -> dict[str, Any]:
    """A reward as parameters of a job, which is stale when one of them changes: its keys, its version, its files."""
    reward, own = reward_of(settings)
    content = reward.content(own)
    return settings.params() | {"version": reward.version} | ({} if content is None else {"content": content})


def reward_settings(params: dict[str, Any] | None) -> Section:
    """What `reward_params` was made of; the truth of nothing."""
    if params is None:
        return TRUTH
    own: Section = _SETTINGS.validate_python({name: value for name, value in params.items() if name not in ADDED})
    return own
