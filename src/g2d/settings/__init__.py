"""Settings: declaration of configuration keys, and messages about mistakes in them."""

from g2d.settings.section import (
    AUTO,
    LARGEST,
    ConfigError,
    MistakeInKeyError,
    Name,
    Revision,
    Rows,
    Section,
    Seed,
    Steps,
    key,
    refuse,
    repeated,
)

__all__ = [
    "AUTO",
    "LARGEST",
    "ConfigError",
    "MistakeInKeyError",
    "Name",
    "Revision",
    "Rows",
    "Section",
    "Seed",
    "Steps",
    "key",
    "refuse",
    "repeated",
]
