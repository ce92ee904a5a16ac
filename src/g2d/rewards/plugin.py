"""Rewards from outside the package: whatever an installed distribution lists under the entry points `g2d.rewards`.

A configuration can name such a reward and cannot name code: what runs is what somebody has installed into the
environment of the jobs, and nothing of it is imported unless a configuration asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from g2d.rewards.reward import Reward
from g2d.settings import MistakeInKeyError, Section, key
from g2d.settings.mistakes import messages

GROUP = "g2d.rewards"


class Plugin(Section):
    """A reward that an installed package brings (entry point group `g2d.rewards`)."""

    reward: Literal["plugin"] = key(..., "Take a reward from an installed package.")
    name: str = key(..., "Name of its entry point.")
    settings: dict[str, Any] = key({}, "Its own keys.")
    time_limit: float = key(
        300.0,
        "Seconds that it may take for one call, of at most 32 groups. If it is late, it is asked again group by group, "
        "and a group for which it is late again is left out (status `late`).",
        gt=0,
        neutral=300.0,
    )

    @model_validator(mode="after")
    def _there(self) -> Plugin:
        self.own_settings  # noqa: B018
        return self

    @property
    def plugin(self) -> Reward:
        """The reward.

        Raises:
            MistakeInKeyError: no package brings it, or what it brings is none.
        """
        return _loaded(self.name)

    @property
    def own_settings(self) -> Section:
        """Its keys, validated."""
        kind = self.plugin.settings
        try:
            return kind.model_validate(self.settings)
        except ValidationError as error:
            lines = messages(error, self.settings, kind)
            raise MistakeInKeyError("settings", "; ".join(lines)) from None


@contextmanager
def contained() -> Iterator[None]:
    """Have code that is not ours raise where it would end this process.

    Raises:
        RuntimeError: it called `sys.exit` or `os._exit`; children that it has forked end as they like.
    """

    def leave(status: int) -> None:
        if os.getpid() != own:
            leave_at_once(status)
        raise RuntimeError(f"it called os._exit({status})")

    own, leave_at_once = os.getpid(), os._exit
    os._exit = leave  # type: ignore[assignment]
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})") from None
    finally:
        os._exit = leave_at_once


@cache
def _loaded(name: str) -> Reward:
    there = {point.name: point for point in entry_points(group=GROUP)}
    if name not in there:
        known = ", ".join(sorted(there)) or "none"
        raise MistakeInKeyError("name", f"no installed package brings the reward {name} ({GROUP}: {known}): install it")
    try:
        with contained():
            reward = there[name].load()
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise MistakeInKeyError("name", f"{there[name].value} cannot be imported ({said}): mend that package") from None
    if not isinstance(reward, Reward):
        raise MistakeInKeyError("name", f"{there[name].value} is no g2d.rewards.reward.Reward: mend that package")
    return reward
