"""Check that a harvest's tokens are of the tokenizer that a training uses."""

from __future__ import annotations

from collections.abc import Iterable

from g2d.policies.policy import Policy, tokenizer_sha256


def require_own_tokens(digests: Iterable[str], base: Policy, what: str) -> None:
    """Raise a ValueError if rollouts or pairs with these digests are not of M0's tokenizer."""
    if foreign := set(digests) - {tokenizer_sha256(base.base)}:
        raise ValueError(
            f"{base.base}: not the tokenizer that {what} were drawn with (sha256 {foreign.pop()[:12]}...): use those "
            "of this model"
        )
