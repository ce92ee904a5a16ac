"""Accuracy at several token budgets from one generation.

A completion at a smaller budget is the beginning of the completion at a larger one, since no token depends on the
budget. Engines provide the texts (`Completion.prefixes`), which are judged with finish reason `length`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from g2d.verifier import Verdict


def prefixes(tokenizer: Any, tokens: Sequence[int], budgets: Sequence[int]) -> dict[int, str]:
    """The text of the first b tokens for every budget b that is shorter than the completion.

    Args:
        tokenizer: decodes tokens.
        tokens: of the completion, with the end-of-turn token.
        budgets: in tokens.
    """
    cutting = [budget for budget in budgets if budget < len(tokens)]
    return {budget: str(tokenizer.decode(list(tokens[:budget]), skip_special_tokens=True)) for budget in cutting}


def to_json(verdicts: Mapping[int, Verdict]) -> str | None:
    """The column `budget_verdicts` of a rollout: JSON from budget to verdict, None without budgets."""
    return json.dumps(verdicts) if verdicts else None


def at_budgets(rollouts: pd.DataFrame) -> dict[int, pd.Series]:
    """Verdicts at every budget that was evaluated, ascending, each indexed like the rollouts; empty without budgets.

    Raises:
        ValueError: the rows have different budgets.
    """
    recorded = [{} if pd.isna(text) else json.loads(text) for text in rollouts["budget_verdicts"]]
    if not recorded:
        return {}
    budgets = {tuple(verdicts) for verdicts in recorded}
    if len(budgets) > 1:
        raise ValueError("rollouts of one file have verdicts at different token budgets: evaluate again")
    return {
        int(budget): pd.Series([verdicts[budget] for verdicts in recorded], index=rollouts.index)
        for budget in sorted(budgets.pop(), key=int)
    }
