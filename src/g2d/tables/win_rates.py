"""Who is preferred to M0 on held-out open-ended prompts, as it is and at equal length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.analysis.crossed import SeedPool
from g2d.analysis.power import POWER
from g2d.analysis.win_rates import length_controlled, preferences, raw, share_longer
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import Grouped, Row, by_grid, by_policy, m0_of, named
from g2d.tables.frames import Rows, columns, interval, table_of

WIN_RATE_COLUMNS = columns(
    "model policy K group_size prompts n_seeds n_prompts n_replies win_rate win_low win_high p_win",
    "equal_length equal_length_low equal_length_high p_equal_length family_size minimum_detectable",
    "length base_length longer score base_score not_judged cut_off",
)
NEEDED = ("problem_id", "sample", "completion_text", "finish_reason", "reward")
BENCHMARK = "open-ended"  # what the prompts are grouped as

Replies = Mapping[PolicyKey, pd.DataFrame]
Rates = tuple[np.ndarray, np.ndarray | None]  # by seed and prompt, as it is and at equal length


@table_of(WIN_RATE_COLUMNS)
def win_rate_table(replies: Replies, prompts: Mapping[str, str]) -> Rows:
    """One row per policy but M0, over its seeds; null where there is no rate at equal length
    (`g2d.analysis.win_rates`).

    Args:
        replies: of every policy, M0 among them, to the same prompts with the same random numbers; `reward` is the
            judge's score.
        prompts: by the name of a policy, the kinds of prompts that it was trained on.

    Raises:
        ValueError: replies are not to the same prompts.
    """
    grouped = by_policy({(key, BENCHMARK): rows for key, rows in replies.items()})
    for rows in by_grid(grouped).values():
        [base] = grouped[m0_of(rows[0])].values()
        aligned = {
            at: {key: _aligned(own, base, key.folder) for key, own in grouped[at].items()}
            for at in rows
            if at[0].role != "base"
        }
        yield from _of_model(aligned, prompts)


def _aligned(own: pd.DataFrame, base: pd.DataFrame, where: str) -> pd.DataFrame:
    """Replies beside M0's, by prompt and sample."""
    keys = ["problem_id", "sample"]
    both = [side[list(NEEDED)].set_index(keys).sort_index() for side in (own, base)]
    if not both[0].index.equals(both[1].index):
        raise ValueError(f"{where}: its replies are not to the prompts that M0 replied to: draw them again")
    return both[0].join(both[1], rsuffix="_of_base")


def _of_model(aligned: Grouped, prompts: Mapping[str, str]) -> Rows:
    rates = {at: _rates([*seeds.values()]) for at, seeds in aligned.items()}
    tested = {at: _tested(at, rates) for at in aligned}
    as_it_is = dict(zip(aligned, corrected([own for own, _ in tested.values()]), strict=True))
    with_rate = {at: own for at, (_, own) in tested.items() if own is not None}
    at_equal = dict(zip(with_rate, corrected(list(with_rate.values())), strict=True))
    for at, seeds in aligned.items():
        won, (rate, controlled) = as_it_is[at], rates[at]
        every = pd.concat(seeds.values())
        scores = every[["reward", "reward_of_base"]]
        lengths = every[["completion_text", "completion_text_of_base"]].apply(lambda texts: texts.str.len())
        row = named(seeds, BENCHMARK) | {"prompts": prompts[at[0].regime], "family_size": len(aligned)}
        row |= {"n_seeds": won.n_seeds, "n_prompts": won.n_problems, "n_replies": len(every)}
        row |= {"win_rate": float(rate.mean())} | _interval("win", won)
        if controlled is not None:
            row |= {"equal_length": float(controlled.mean())} | _interval("equal_length", at_equal[at])
        row |= dict(zip(("length", "base_length"), lengths.mean(), strict=True))
        row |= dict(zip(("score", "base_score"), scores.mean(), strict=True))
        row |= {"longer": share_longer((lengths.iloc[:, 0] - lengths.iloc[:, 1]).to_numpy())}
        row |= {"minimum_detectable": _detectable(tested[at][0])}
        row |= {"not_judged": int(scores.isna().any(axis=1).sum())}
        yield row | {"cut_off": int((every["finish_reason"] == "length").sum())}


def _detectable(found: Comparison) -> float:
    """The distance from 1/2 that is found with the usual power at the corrected level. `corrected` may end an interval
    at 1/2, so `found` is not from there."""
    reach = (found.family_high - found.family_low) / 2
    return float(reach + scipy.stats.norm.ppf(POWER) * found.standard_error)


def _rates(seeds: Sequence[pd.DataFrame]) -> Rates:
    """Win rates over the prompts that every seed has a comparison of."""

    def values(column: Any) -> np.ndarray:
        return np.stack([column(rows).unstack("sample").to_numpy(dtype=float) for rows in seeds])

    won = preferences(values(lambda rows: rows["reward"]), values(lambda rows: rows["reward_of_base"]))
    longer = values(lambda rows: rows["completion_text"].str.len() - rows["completion_text_of_base"].str.len())
    compared = np.isfinite(won).any(axis=2).all(axis=0)
    won, longer = won[:, compared], longer[:, compared]
    return raw(won), length_controlled(won, longer)


def _tested(at: Row, rates: Mapping[Row, Rates]) -> tuple[Comparison, Comparison | None]:
    """Both win rates against 1/2, what M0 has against itself."""

    def tested(found: Sequence[np.ndarray | None], own: np.ndarray) -> Comparison:
        rows = [rate.mean(axis=1) for rate in found if rate is not None and len(rate) == len(own)]
        return compare(own, np.full((1, own.shape[1]), 0.5), SeedPool(np.stack(rows)), len(rates))

    as_it_is, at_equal = rates[at]
    return (
        tested([rate for rate, _ in rates.values()], as_it_is),
        None if at_equal is None else tested([rate for _, rate in rates.values()], at_equal),
    )


def _interval(name: str, found: Comparison) -> dict[str, float | None]:
    low, high = (min(max(0.5 + end, 0.0), 1.0) for end in (found.family_low, found.family_high))
    return interval(name, (low, high)) | {f"p_{name}": found.p_holm}
