"""Check that a harvest's tokens are of the tokenizer that a training uses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.policies.record import PolicyRecord, tokenizer_sha256
from g2d.rollouts.rollout import read_rollouts

if TYPE_CHECKING:
    import pandas as pd


def read_own_rollouts(file: str | Path, base: PolicyRecord) -> pd.DataFrame:
    """Read a harvest that was drawn with M0's tokenizer; otherwise raise a ValueError."""
    rollouts = read_rollouts(file)
    if "tokenizer_sha256" not in rollouts:
        raise ValueError(f"{file}: has no sampled tokens, as files of 0.1.0: delete it to have it drawn again")
    require_own_tokens(rollouts["tokenizer_sha256"], base, "the rollouts")
    return rollouts


def require_own_tokens(digests: Iterable[str], base: PolicyRecord, what: str) -> None:
    """Raise a ValueError if rollouts or pairs with these digests are not of M0's tokenizer."""
    foreign = set(digests) - {tokenizer_sha256(base.base)}
    if foreign:
        raise ValueError(
            f"{base.base}: not the tokenizer that {what} were drawn with (sha256 {foreign.pop()[:12]}...): use those "
            "of this model"
        )
