"""Rewards from other packages: entry points `g2d.rewards` of installed distributions.

They are only imported if a configuration names them.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from g2d.rewards.foreign_code import TimeLimited, contained
from g2d.rewards.reward import Reward
from g2d.settings import MistakeInKeyError, Section, key
from g2d.settings.mistakes import messages

GROUP = "g2d.rewards"


class Plugin(TimeLimited):
    """A reward of an installed package (entry point group `g2d.rewards`)."""

    reward: Literal["plugin"] = key(..., "Use a reward of an installed package.")
    name: str = key(..., "Name of the entry point.")
    settings: dict[str, Any] = key({}, "Settings of the reward.")

    @model_validator(mode="after")
    def _loads(self) -> Plugin:
        self.own_settings  # noqa: B018
        return self

    @property
    def plugin(self) -> Reward:
        """The reward; a MistakeInKeyError if no package provides it, or if it is not a `Reward`."""
        return _loaded(self.name)

    @property
    def own_settings(self) -> Section:
        """The reward's settings, validated."""
        kind = self.plugin.settings
        try:
            return kind.model_validate(self.settings)
        except ValidationError as error:
            lines = messages(error, self.settings, kind)
            raise MistakeInKeyError("settings", "; ".join(lines)) from None


@cache
def _loaded(name: str) -> Reward:
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if name not in installed:
        names = ", ".join(sorted(installed)) or "none"
        raise MistakeInKeyError("name", f"no installed package brings the reward {name} ({GROUP}: {names}): install it")
    try:
        with contained():
            reward = installed[name].load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        message = f"{installed[name].value} cannot be imported ({reason}): mend that package"
        raise MistakeInKeyError("name", message) from None
    if not isinstance(reward, Reward):
        raise MistakeInKeyError("name", f"{installed[name].value} is no g2d.rewards.reward.Reward: mend that package")
    return reward
