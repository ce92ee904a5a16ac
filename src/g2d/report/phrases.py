"""Values as they stand in a sentence."""

from __future__ import annotations

import math
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


def these_weights(n_seeds: int, before: bool = False) -> str:
    """What a claim is about where there is one training run of each policy: nothing is known of other seeds."""
    if n_seeds > 1:
        return ""
    return "with these weights, " if before else " with these weights"


def at_most(share: float) -> str:
    """An upper bound in points, rounded up."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f}"
