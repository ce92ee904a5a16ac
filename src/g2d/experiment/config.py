"""Reading a configuration: its sections (`g2d.experiment.sections`), then the rules between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from g2d.experiment.checks import mistakes
from g2d.experiment.config_file import read_file, require_whole
from g2d.experiment.sections import Config
from g2d.settings import ConfigError
from g2d.settings.mistakes import messages

__all__ = ["Config", "load", "read"]


def load(values: Mapping[str, Any], file: str = "config") -> Config:
    """Validate a configuration that Snakemake has read.

    Args:
        values: the parsed YAML.
        file: name of the file, for the message.

    Raises:
        ConfigError: one line per mistake, each with file, key and fix.
    """
    try:
        config = Config.model_validate(dict(values))
        found = mistakes(config)
    except ValidationError as error:
        found = messages(error, values, Config)
    if found:
        raise ConfigError("\n".join(f"{file}: {line}" for line in found))
    return config


def read(path: str | Path) -> Config:
    """Read and validate a YAML file.

    Raises:
        ConfigError: one line per mistake, each with file, key and fix.
    """
    values = read_file(path)
    require_whole(values, [path])
    return load(values, str(path))
