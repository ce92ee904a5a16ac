"""Settings: declaration of configuration keys, and messages about mistakes in them."""

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
