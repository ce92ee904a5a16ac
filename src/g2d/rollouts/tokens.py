"""Tokens for training: the sampled ones, or made from text if only text was recorded.

Tokens from text are for files of 0.1.0 and pairs from other sources, and count as ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from g2d.policies.policy import Policy, end_tokens, load_tokenizer, tokenizer_sha256
from g2d.problems.prompts import conversation_ids, plain_ids, token_ids
from g2d.rollouts.pairs import Pair
from g2d.rollouts.rollout import IDS

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase


def with_token_ids(rollouts: pd.DataFrame, base: Policy) -> pd.DataFrame:
    """Return rollouts with prompt_ids and completion_ids in every row, as arrays of int32.

    Raises a ValueError if the tokens are from another tokenizer than M0's.
    """
    import numpy as np
    import pandas as pd

    has_tokens = (
        rollouts["completion_ids"].notna() if "completion_ids" in rollouts else pd.Series(False, rollouts.index)
    )
    _require_own(rollouts.loc[has_tokens, "tokenizer_sha256"] if has_tokens.any() else (), base, "the rollouts")
    if has_tokens.all():
        return rollouts
    (tokenizer, end), bare = _tokenizer(base), rollouts[~has_tokens]
    texts = [plain_ids(tokenizer, text) for text in bare["completion_text"]]
    answers = zip(texts, bare["finish_reason"] == "stop", strict=True)
    made = (token_ids(tokenizer, bare["prompt_text"]), [ids + [end] * ended for ids, ended in answers])
    rows = rollouts.reset_index(drop=True).assign(tokenizer_sha256=tokenizer_sha256(base.base))
    for name, ids in zip(IDS, made, strict=True):
        column = rows[name] if name in rows else pd.Series(None, rows.index, dtype="object")
        fresh = pd.Series(
            [np.array(row, dtype=np.int32) for row in ids], rows.index[~has_tokens.to_numpy()], dtype="object"
        )
        rows[name] = column.where(has_tokens.to_numpy(), fresh)
    return rows.set_index(rollouts.index)


def pairs_with_token_ids(pairs: Sequence[Pair], base: Policy) -> list[Pair]:
    bare = [pair for pair in pairs if "chosen_ids" not in pair]
    _require_own((pair["tokenizer_sha256"] for pair in pairs if "chosen_ids" in pair), base, "the pairs")
    if not bare:
        return list(pairs)
    (tokenizer, end), digest = _tokenizer(base), tokenizer_sha256(base.base)
    prompts = [conversation_ids(tokenizer, pair["prompt"]) for pair in bare]
    chosen, rejected = (
        [[*plain_ids(tokenizer, pair[side][-1]["content"]), end] for pair in bare] for side in ("chosen", "rejected")
    )
    made = (
        Pair(**pair, prompt_ids=asked, chosen_ids=right, rejected_ids=wrong, tokenizer_sha256=digest)
        for pair, asked, right, wrong in zip(bare, prompts, chosen, rejected, strict=True)
    )
    return [pair if "chosen_ids" in pair else next(made) for pair in pairs]


def _require_own(digests: Iterable[str], base: Policy, what: str) -> None:
    if foreign := set(digests) - {tokenizer_sha256(base.base)}:
        raise ValueError(
            f"{base.base}: not the tokenizer that {what} were drawn with (sha256 {foreign.pop()[:12]}...): use those "
            "of this model"
        )


def _tokenizer(base: Policy) -> tuple[PreTrainedTokenizerBase, int]:
    tokenizer = load_tokenizer(base)
    return tokenizer, closing_token(tokenizer, end_tokens(base, tokenizer))


def closing_token(tokenizer: PreTrainedTokenizerBase, ends: Iterable[int]) -> int:
    """Return the token that closes an assistant turn in the template; Gemma's is not its `eos_token`."""
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    tokens: list[int] = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)
    ends = frozenset(ends)
    return next((token for token in reversed(tokens) if token in ends), int(tokenizer.eos_token_id))
