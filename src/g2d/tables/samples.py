"""pass@k and maj@n of every policy: samples.csv."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from g2d.analysis.samples import Equal, majority_right, pass_at_k, powers_up_to
from g2d.experiment.keys import PolicyKey
from g2d.tables.evaluations import ROW, Evaluations, by_policy, crossed, row_of, share
from g2d.tables.frames import Rows, columns, table_of

READ = ("problem_id", "verdict", "reward", "extracted_answer")
SAMPLE_COLUMNS = columns(ROW, "n_seeds n_problems n_samples measure k share ci_low ci_high")


@table_of(SAMPLE_COLUMNS)
def sample_table(samples: Evaluations, equal: Equal) -> Rows:
    """What one of k samples, or most of n, get right.

    Returns:
        `SAMPLE_COLUMNS`, for every policy and benchmark a row for pass@k at k = 1, 2, 4, ... and n, and one for maj@n.

    Raises:
        ValueError: the seeds of a policy answered different problems, or problems have different numbers of samples.
    """
    for (_, benchmark), own in by_policy(samples).items():
        yield from _rows(own, benchmark, equal)


def _rows(by_key: Mapping[PolicyKey, pd.DataFrame], benchmark: str, equal: Equal) -> Rows:
    counts = {key: rows.groupby("problem_id", sort=True)["reward"].agg(["sum", "size"]) for key, rows in by_key.items()}
    n = int(next(iter(counts.values()))["size"].iloc[0])
    for key, own in counts.items():
        if (own["size"] != n).any():
            raise ValueError(f"{key.folder} on {benchmark}: not every problem has {n} samples: draw them again")
    measures = {
        ("pass", k): {key: pd.Series(pass_at_k(n, own["sum"].to_numpy(), k), own.index) for key, own in counts.items()}
        for k in powers_up_to(n)
    }
    measures["maj", n] = {key: majority_right(rows, equal) for key, rows in by_key.items()}
    for (measure, k), values in measures.items():
        frames = {key: pd.DataFrame({"problem_id": own.index, "share": own.to_numpy()}) for key, own in values.items()}
        shares = crossed(frames, benchmark, "share")
        row = row_of(by_key, benchmark, shares) | share(shares, "share")
        yield row | {"n_samples": n, "measure": measure, "k": k}
