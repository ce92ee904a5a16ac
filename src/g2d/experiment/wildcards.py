"""What the wildcards of a job say: anything with the attributes that a function reads (model, seed, variant, regime, g,
k, policy, shard)."""

from __future__ import annotations

from typing import Any

Wildcards = Any


def model_of(wildcards: Wildcards) -> str:
    """The model a job belongs to: a wildcard of its own, or the first folder of a policy."""
    return str(getattr(wildcards, "model", None) or wildcards.policy.split("/")[0])


def variant_of(wildcards: Wildcards) -> str:
    """The ablation whose warm-up a job belongs to, "" for the main one, `AUTO` for the one that stops by itself."""
    return variant_folder(wildcards).rstrip("/")


def variant_folder(wildcards: Wildcards) -> str:
    """Its folder, with a slash; rules that know the main warm-up only have no such wildcard."""
    return str(getattr(wildcards, "variant", ""))
