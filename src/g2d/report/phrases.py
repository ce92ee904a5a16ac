"""Values as they stand in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def settings_of(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def nested(sections: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{section}.{key}={value}" for section, values in sections.items() for key, value in values.items()
    )


def numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def choice(values: Sequence[int]) -> str:
    return f"= {values[0]}" if len(values) == 1 else f"in {{{numbers(values)}}}"


def span(low: float, high: float) -> str:
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
