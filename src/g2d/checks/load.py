"""Read a configuration: its sections (`g2d.config.sections`), then the rules between them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from g2d.checks.rules import mistakes
from g2d.config.file import merged, read_file, read_files, require_whole, source_of
from g2d.config.sections import FILES, Config
from g2d.settings import ConfigError, refuse
from g2d.settings.mistakes import messages


def load(
    values: Mapping[str, Any], file: str = "config", sources: Mapping[str, Mapping[str, Any]] | None = None
) -> Config:
    """Validate a configuration. A ConfigError has one line per mistake, with file, key and fix.

    Args:
        sources: values of files, and of --config, in the order of merging; instead of the name of one `file`.
    """
    values = with_file_rewards(values)
    try:
        config = Config.model_validate(values)
        lines = mistakes(config)
    except ValidationError as error:
        lines = messages(error, values, Config)
    found = []
    for line in lines:
        source = source_of(line, sources) if sources else file
        found.append(f"{source}: {line}")
    refuse(found)
    return config


def with_file_rewards(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add an entry of `rewards` for each `reward: {file: my_reward.py}`, named after the file.

    `reward: python` may be left out.
    """
    copied = copy.deepcopy(dict(values))
    rewards = copied.get("rewards", {})
    if not isinstance(rewards, dict):
        return copied  # the validation reports it
    for name, entry in rewards.items():
        if isinstance(entry, dict) and "file" in entry:
            rewards[name] = {"reward": "python"} | entry
    for section, key in _named_rewards(copied):
        given = section[key]
        if isinstance(given, dict) and isinstance(given.get("file"), str):
            section[key] = _entry_of({"reward": "python"} | given, rewards)
    if rewards:
        copied["rewards"] = rewards
    return copied


def _named_rewards(values: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the sections, not validated yet, that may name a reward, each with the key."""
    sections = [values.get("open_ended"), values.get("warmup")]
    for model in _mapping(values.get("models")).values():
        settings = _mapping(_mapping(model).get("settings"))
        sections.append(settings.get("warmup"))
    for group in ("ablations", "regimes"):
        sections += _mapping(values.get(group)).values()
    for section in map(_mapping, sections):
        for key in ("reward", "judge"):
            if key in section:
                yield section, key


def _mapping(value: Any) -> dict[str, Any]:
    """Return a value that should be a mapping, empty if it is not: the validation reports it."""
    return value if isinstance(value, dict) else {}


def _entry_of(given: dict[str, Any], rewards: dict[str, Any]) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]", "-", Path(given["file"]).stem).lstrip("._-") or "file"
    name = stem
    number = 1
    while rewards.setdefault(name, given) != given:
        number += 1
        name = f"{stem}-{number}"
    return name


def read(*paths: str | Path) -> Config:
    """Read and validate a configuration, and files that are merged over it."""
    sources = read_files(paths)
    values = reduce(merged, sources.values())
    require_whole(values, list(sources))
    return load(values, sources=sources)


def read_record(path: str | Path) -> Config:
    """Read the configuration that a run wrote into its results folder."""
    return load(read_file(path), file=str(path))


# ------------------------------------------------------------------------------------------- of finished results


@dataclass(frozen=True)
class Owner:
    """The configuration of a results folder.

    Args:
        files: configuration files, relative to the folder above the results; empty if the record does not name them.
    """

    config: Config
    files: list[str]

    def came_from_others(self, files: Sequence[str]) -> bool:
        """Return whether it was read from other files, so `files` are no edited version of it."""
        if not self.files:
            return False
        if len(self.files) != len(files):
            return True
        return not all(_is_same(before, now) for before, now in zip(self.files, files, strict=True))

    def shares_no_model(self, config: Config) -> bool:
        mine = _models(self.config)
        return not any(model in mine for model in _models(config))


def _models(config: Config) -> list[tuple[str, dict[str, Any]]]:
    return [(name, source.params(without={"settings"})) for name, source in config.models.items()]


def _is_same(before: str, now: str) -> bool:
    """Return whether a file is the same one, possibly moved."""
    return before == now or (Path(before).name == Path(now).name and not Path(before).exists())


def owner(file: str | Path) -> Owner | None:
    """Return the owner of a results folder from its `config.yaml`, None if that cannot be read."""
    try:
        config = read_record(file)
        first, _, _ = Path(file).read_text(encoding="utf-8").partition("\n")
        files = []
        if first.startswith(FILES):
            files = json.loads(first.removeprefix(FILES))
        return Owner(config, files)
    except (ConfigError, OSError, ValueError):
        return None
