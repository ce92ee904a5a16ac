"""Settings: how a key is declared, and how a mistake in one is put."""

from g2d.settings.section import (
    LARGEST,
    ConfigError,
    MistakeInKeyError,
    Name,
    Revision,
    Section,
    Seed,
    Steps,
    key,
    repeated,
)

__all__ = [
    "LARGEST",
    "ConfigError",
    "MistakeInKeyError",
    "Name",
    "Revision",
    "Section",
    "Seed",
    "Steps",
    "key",
    "repeated",
]
