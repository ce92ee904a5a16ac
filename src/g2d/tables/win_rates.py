"""Win rates against M0 on held-out open-ended prompts, raw and at equal length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import Comparison, compare, corrected
from g2d.analysis.preferences import length_controlled, preferences, raw, share_longer
from g2d.grid.runs import Policy
from g2d.tables.evaluations import Grouped, Row, by_grid, by_policy, m0_of, named
from g2d.tables.frames import Rows, columns, interval, table_of

WIN_RATE_COLUMNS = columns(
    "model policy K group_size prompts n_seeds n_prompts n_replies win_rate win_low win_high p_win",
    "equal_length equal_length_low equal_length_high p_equal_length family_size",
    "length base_length longer score base_score not_judged cut_off",
)
NEEDED = ("problem_id", "cluster", "sample", "completion_text", "finish_reason", "reward")
THEN = ", then "  # between kinds of prompts
BENCHMARK = "open-ended"  # the prompts, as the benchmark of a `Row`


@table_of(WIN_RATE_COLUMNS)
def win_rate_table(replies: Mapping[Policy, pd.DataFrame]) -> Rows:
    """A row per policy except M0; null if there is no rate at equal length (`g2d.analysis.preferences`).

    Args:
        replies: replies of each policy and M0 to the same prompts; `reward` is the judge's score.

    Raises:
        ValueError: two policies replied to different prompts.
    """
    grouped = by_policy({(policy, BENCHMARK): rows for policy, rows in replies.items()})
    for rows in by_grid(grouped).values():
        [base] = grouped[m0_of(rows[0])].values()
        aligned: dict[Row, dict[Policy, pd.DataFrame]] = {}
        for at in rows:
            if at[0].role != "base":
                aligned[at] = {}
                for policy, replied in grouped[at].items():
                    aligned[at][policy] = _aligned(replied, base, policy.folder)
        yield from _rows_of_model(aligned)


def _aligned(policy: pd.DataFrame, base: pd.DataFrame, folder: str) -> pd.DataFrame:
    policy = _by_sample(policy)
    base = _by_sample(base)
    if not policy.index.equals(base.index):
        raise ValueError(f"{folder}: its replies are not to the prompts that M0 replied to: draw them again")
    return policy.join(base, rsuffix="_of_base")


def _by_sample(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[list(NEEDED)].set_index(["problem_id", "sample"]).sort_index()


def _rows_of_model(aligned: Grouped) -> Rows:
    rates: dict[Row, np.ndarray] = {}
    rates_at_equal_length: dict[Row, np.ndarray] = {}
    clusters: dict[Row, np.ndarray] = {}
    for at, seeds in aligned.items():
        rate, rate_at_equal_length, clusters[at] = _rates(list(seeds.values()))
        rates[at] = rate
        if rate_at_equal_length is not None:
            rates_at_equal_length[at] = rate_at_equal_length
    tests = _tested(rates, clusters, len(rates))
    tests_at_equal_length = _tested(rates_at_equal_length, clusters, len(rates))
    for at, seeds in aligned.items():
        replies = pd.concat(seeds.values())
        scores = replies[["reward", "reward_of_base"]]
        mean_scores = scores.mean()
        lengths = replies["completion_text"].str.len()
        base_lengths = replies["completion_text_of_base"].str.len()
        row = named(seeds, BENCHMARK)
        row["prompts"] = THEN.join(at[0].run.kinds_of_prompts)
        row["family_size"] = len(aligned)
        row["n_seeds"] = tests[at].n_seeds
        row["n_prompts"] = tests[at].n_problems
        row["n_replies"] = len(replies)
        row["win_rate"] = float(rates[at].mean())
        row.update(_interval("win", tests[at]))
        if at in rates_at_equal_length:
            row["equal_length"] = float(rates_at_equal_length[at].mean())
            row.update(_interval("equal_length", tests_at_equal_length[at]))
        row["length"] = lengths.mean()
        row["base_length"] = base_lengths.mean()
        row["longer"] = share_longer((lengths - base_lengths).to_numpy())
        row["score"] = mean_scores["reward"]
        row["base_score"] = mean_scores["reward_of_base"]
        row["not_judged"] = int(scores.isna().any(axis=1).sum())
        row["cut_off"] = int((replies["finish_reason"] == "length").sum())
        yield row


def _rates(seeds: Sequence[pd.DataFrame]) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return win rates by seed and prompt, raw and at equal length, over prompts with a comparison in each seed, and
    the clusters of these prompts."""

    def values(column: Callable[[pd.DataFrame], pd.Series]) -> np.ndarray:
        return np.stack([column(rows).unstack("sample").to_numpy(dtype=float) for rows in seeds])

    won = preferences(values(lambda rows: rows["reward"]), values(lambda rows: rows["reward_of_base"]))
    longer = values(lambda rows: rows["completion_text"].str.len() - rows["completion_text_of_base"].str.len())
    compared = np.isfinite(won).any(axis=2).all(axis=0)
    won = won[:, compared]
    longer = longer[:, compared]
    clusters = seeds[0]["cluster"].groupby("problem_id", sort=True).first().to_numpy()
    return raw(won), length_controlled(won, longer), clusters[compared]


def _tested(rates: Mapping[Row, np.ndarray], clusters: Mapping[Row, np.ndarray], family: int) -> dict[Row, Comparison]:
    """Compare win rates with 1/2. `family` is the number of policies, also of those without a rate."""
    comparisons = []
    for at, rate in rates.items():
        half = np.full((1, rate.shape[1]), 0.5)
        comparisons.append(compare(rate, half, family, clusters[at]))
    return dict(zip(rates, corrected(comparisons, family - len(rates)), strict=True))


def _interval(name: str, test: Comparison) -> dict[str, float | None]:
    low = max(0.5 + test.ci_low, 0.0)
    high = min(0.5 + test.ci_high, 1.0)
    return interval(name, (low, high)) | {f"p_{name}": test.p_value}
