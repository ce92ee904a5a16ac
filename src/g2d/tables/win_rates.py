"""Win rates against M0 on held-out open-ended prompts, raw and at equal length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.analysis.preferences import length_controlled, preferences, raw, share_longer
from g2d.grid.policy import Policy
from g2d.tables.evaluations import Grouped, by_grid, by_policy, m0_of, named
from g2d.tables.frames import Rows, columns, interval, table_of

WIN_RATE_COLUMNS = columns(
    "model policy K group_size prompts n_seeds n_prompts n_replies win_rate win_low win_high p_win",
    "equal_length equal_length_low equal_length_high p_equal_length family_size",
    "length base_length longer score base_score not_judged cut_off",
)
NEEDED = ("problem_id", "sample", "completion_text", "finish_reason", "reward")
BENCHMARK = "open-ended"  # the prompts, as the benchmark of a `Row`


@table_of(WIN_RATE_COLUMNS)
def win_rate_table(replies: Mapping[Policy, pd.DataFrame]) -> Rows:
    """A row per policy except M0; null if there is no rate at equal length (`g2d.analysis.preferences`).

    Args:
        replies: replies of each policy and M0 to the same prompts; `reward` is the judge's score.

    Raises:
        ValueError: two policies replied to different prompts.
    """
    grouped = by_policy({(key, BENCHMARK): rows for key, rows in replies.items()})
    for rows in by_grid(grouped).values():
        [base] = grouped[m0_of(rows[0])].values()
        aligned = {
            at: {key: _aligned(policy, base, key.folder) for key, policy in grouped[at].items()}
            for at in rows
            if at[0].role != "base"
        }
        yield from _of_model(aligned)


def _aligned(policy: pd.DataFrame, base: pd.DataFrame, folder: str) -> pd.DataFrame:
    policy, base = (rows[list(NEEDED)].set_index(["problem_id", "sample"]).sort_index() for rows in (policy, base))
    if not policy.index.equals(base.index):
        raise ValueError(f"{folder}: its replies are not to the prompts that M0 replied to: draw them again")
    return policy.join(base, rsuffix="_of_base")


def _of_model(aligned: Grouped) -> Rows:
    rates = [_rates([*seeds.values()]) for seeds in aligned.values()]
    tests = _tested([rate for rate, _ in rates], len(rates))
    with_rate = {at: rate for at, (_, rate) in zip(aligned, rates, strict=True) if rate is not None}
    at_equal_length = _tested([*with_rate.values()], len(rates))
    equal_length_tests = dict(zip(with_rate, at_equal_length, strict=True))
    for (at, seeds), (rate, _), won in zip(aligned.items(), rates, tests, strict=True):
        replies = pd.concat(seeds.values())
        scores = replies[["reward", "reward_of_base"]]
        lengths = replies[["completion_text", "completion_text_of_base"]].apply(lambda texts: texts.str.len())
        row = named(seeds, BENCHMARK) | {"prompts": at[0].run.kinds_of_prompts, "family_size": len(aligned)}
        row |= {"n_seeds": won.n_seeds, "n_prompts": won.n_problems, "n_replies": len(replies)}
        row |= {"win_rate": float(rate.mean())} | _interval("win", won)
        if at in with_rate:
            row |= {"equal_length": float(with_rate[at].mean())} | _interval("equal_length", equal_length_tests[at])
        row |= dict(zip(("length", "base_length"), lengths.mean(), strict=True))
        row |= dict(zip(("score", "base_score"), scores.mean(), strict=True))
        row |= {"longer": share_longer((lengths.iloc[:, 0] - lengths.iloc[:, 1]).to_numpy())}
        row |= {"not_judged": int(scores.isna().any(axis=1).sum())}
        yield row | {"cut_off": int((replies["finish_reason"] == "length").sum())}


def _rates(seeds: Sequence[pd.DataFrame]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return win rates by seed and prompt, raw and at equal length, over prompts with a comparison in each seed."""

    def values(column: Callable[[pd.DataFrame], pd.Series]) -> np.ndarray:
        return np.stack([column(rows).unstack("sample").to_numpy(dtype=float) for rows in seeds])

    won = preferences(values(lambda rows: rows["reward"]), values(lambda rows: rows["reward_of_base"]))
    longer = values(lambda rows: rows["completion_text"].str.len() - rows["completion_text_of_base"].str.len())
    compared = np.isfinite(won).any(axis=2).all(axis=0)
    won, longer = won[:, compared], longer[:, compared]
    return raw(won), length_controlled(won, longer)


def _tested(rates: Sequence[np.ndarray], family: int) -> list[Comparison]:
    return corrected([compare(rate, np.full((1, rate.shape[1]), 0.5), family) for rate in rates])


def _interval(name: str, test: Comparison) -> dict[str, float | None]:
    low, high = (min(max(0.5 + end, 0.0), 1.0) for end in (test.family_low, test.family_high))
    return interval(name, (low, high)) | {f"p_{name}": test.p_holm}
