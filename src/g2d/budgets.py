"""Accuracy at several token budgets from one generation, so that truncation can be told from reasoning.

What a policy writes within b tokens is the beginning of what it writes within more: greedy decoding chooses each token
from those before it, and a sampled token comes from a stream that does not know the budget. So the completion at a
smaller budget is its first b tokens, cut; it is judged as such, with finish reason `length`. Engines provide the cut
texts, because only they have the tokens (`Completion.prefixes`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from g2d.verifier import Verdict


def cut(token_ids: Sequence[int], token_count: int, budgets: Sequence[int]) -> dict[int, Sequence[int]]:
    """The first b tokens for every budget b that cuts the completion.

    Args:
        token_ids: tokens of the completion's text.
        token_count: what the completion took, the end-of-turn token included.
        budgets: in tokens.
    """
    return {budget: token_ids[:budget] for budget in budgets if budget < token_count}


def to_json(verdicts: Mapping[int, Verdict]) -> str | None:
    """The column `budget_verdicts` of a rollout: JSON from budget to verdict, None without budgets."""
    return json.dumps(verdicts) if verdicts else None


def at_budgets(rollouts: pd.DataFrame) -> dict[int, pd.Series]:
    """Verdicts at every budget that was evaluated, ascending, each indexed like the rollouts.

    The largest is the generation's own budget where it is known: the last key of the configuration's list.

    Raises:
        ValueError: the rows have different budgets.
    """
    recorded = [{} if text is None else json.loads(text) for text in rollouts["budget_verdicts"]]
    budgets = {tuple(verdicts) for verdicts in recorded}
    if len(budgets) > 1:
        raise ValueError("rollouts of one file have verdicts at different token budgets: evaluate again")
    return {
        int(budget): pd.Series([verdicts[budget] for verdicts in recorded], index=rollouts.index)
        for budget in sorted(next(iter(budgets), ()), key=int)
    }
