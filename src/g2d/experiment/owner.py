"""Whose results a folder has, so that a run of another configuration does not replace them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from g2d.experiment.config import read
from g2d.experiment.sections import FILES, Config
from g2d.settings import ConfigError


@dataclass(frozen=True)
class Owner:
    """The configuration of the last run in a results folder."""

    config: Config
    files: list[str] | None  # that it was given in; None where an older version has not written them down

    def came_from_others(self, files: Sequence[str]) -> bool:
        """Whether it is known to have come from other files than these: then they are not it, changed."""
        return self.files is not None and self.files != [*files]

    def shares_no_model(self, config: Config) -> bool:
        """Whether another configuration has none of its models, by name and source."""
        mine, its = ([(n, m.params(without={"settings"})) for n, m in c.models.items()] for c in (self.config, config))
        return not any(model in mine for model in its)


def owner(file: str | Path) -> Owner | None:
    """The owner of a results folder, from its `config.yaml`; None where there is none or it cannot be read."""
    try:
        config = read(file)
        first, _, _ = Path(file).read_text(encoding="utf-8").partition("\n")
        return Owner(config, json.loads(first.removeprefix(FILES)) if first.startswith(FILES) else None)
    except (ConfigError, OSError, ValueError):
        return None
