"""Several answers to one problem: pass@k, and maj@n, the majority vote: samples.csv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import scipy

from g2d.grid.runs import Policy
from g2d.tables.evaluations import ROW, Evaluations, by_policy, clusters_of, crossed, row_of, share
from g2d.tables.frames import Rows, columns, table_of
from g2d.verifier.normalise import normalise

Equal = Callable[[Sequence[tuple[str, str]]], Sequence[bool]]  # whether the second answer equals the first, by pair
READ = ("problem_id", "cluster", "verdict", "reward", "extracted_answer")
SAMPLE_COLUMNS = columns(ROW, "n_seeds n_problems n_samples measure k share ci_low ci_high")


@table_of(SAMPLE_COLUMNS)
def sample_table(samples: Evaluations, equal: Equal) -> Rows:
    """A row per policy, benchmark and measure: pass@k at k = 1, 2, 4, ... and n, and maj@n; ValueError if problems have
    different numbers of samples."""
    for (_, benchmark), by_seed in by_policy(samples).items():
        yield from _rows(by_seed, benchmark, equal)


def _rows(by_seed: Mapping[Policy, pd.DataFrame], benchmark: str, equal: Equal) -> Rows:
    counts: dict[Policy, pd.DataFrame] = {}
    for policy, rows in by_seed.items():
        counts[policy] = rows.groupby("problem_id", sort=True)["reward"].agg(["sum", "size"])
    clusters = clusters_of(by_seed)
    n = int(next(iter(counts.values()))["size"].iloc[0])
    for policy, count in counts.items():
        if (count["size"] != n).any():
            raise ValueError(f"{policy.folder} on {benchmark}: not every problem has {n} samples: draw them again")
    for k in powers_up_to(n):
        passed: dict[Policy, pd.Series] = {}
        for policy, count in counts.items():
            passed[policy] = pd.Series(pass_at_k(n, count["sum"].to_numpy(), k), count.index)
        yield _row(passed, benchmark, clusters) | {"n_samples": n, "measure": "pass", "k": k}
    majorities = {policy: majority_right(rows, equal) for policy, rows in by_seed.items()}
    yield _row(majorities, benchmark, clusters) | {"n_samples": n, "measure": "maj", "k": n}


def _row(by_seed: Mapping[Policy, pd.Series], benchmark: str, clusters: np.ndarray) -> dict[str, object]:
    """Return the cells of a measure from its values by problem_id."""
    frames: dict[Policy, pd.DataFrame] = {}
    for policy, values in by_seed.items():
        frames[policy] = values.rename("share").rename_axis("problem_id").reset_index()
    shares = crossed(frames, benchmark, "share")
    return row_of(by_seed, benchmark, shares) | share(shares, clusters, "share")


def pass_at_k(n: int, right: np.ndarray, k: int) -> np.ndarray:
    """Estimate pass@k without bias, if `right` of n samples are right (Chen et al. 2021, arXiv 2107.03374, eq. 1)."""
    return np.asarray(scipy.stats.hypergeom.sf(0, n, right, k))


def powers_up_to(n: int) -> list[int]:
    """Return 1, 2, 4, ... below n, and n."""
    numbers = []
    power = 1
    while power < n:
        numbers.append(power)
        power *= 2
    return [*numbers, n]


def majority_right(answers: pd.DataFrame, equal: Equal) -> pd.Series:
    """Return maj@n by problem_id: 1 if the most frequent answer is right, its share of a tie, 0 without votes.

    This is self-consistency (arXiv 2203.11171) over all n samples. docs/analysis.md defines equal answers.
    """
    votes = {name: _votes(samples) for name, samples in answers.groupby("problem_id", sort=True)}
    distinct: dict[tuple[str, str], None] = {}
    for right, wrong in votes.values():
        if _undecided(right, wrong):
            distinct.update(dict.fromkeys(combinations(wrong, 2)))
    pairs = list(distinct)
    equal_pairs = dict(zip(pairs, equal(pairs), strict=True))
    shares = {name: _share(right, wrong, equal_pairs) for name, (right, wrong) in votes.items()}
    return pd.Series(shares, dtype=float)


def _votes(samples: pd.DataFrame) -> tuple[int, Counter[str]]:
    voted = samples[samples["extracted_answer"].fillna("").str.strip() != ""]
    is_right = voted["verdict"] == "correct"
    wrong = voted[~is_right]
    written: Counter[str] = Counter()
    for answer, verdict in zip(wrong["extracted_answer"], wrong["verdict"], strict=True):
        if verdict == "limit":  # too large to parse, so too large to rewrite
            written[answer] += 1
        else:
            written[normalise(answer)] += 1
    return int(is_right.sum()), written


def _undecided(right: int, wrong: Counter[str]) -> bool:
    """Return whether wrong answers may reach the votes of the right one only if some of them are equal."""
    return len(wrong) > 1 and max(wrong.values()) <= right <= sum(wrong.values())


def _share(right: int, wrong: Counter[str], equal: Mapping[tuple[str, str], bool]) -> float:
    if not right:
        return 0.0
    counts = list(wrong.values())
    if _undecided(right, wrong):
        counts = _joined(wrong, equal)
    if max(counts, default=0) > right:
        return 0.0
    return 1 / (1 + counts.count(right))


def _joined(wrong: Counter[str], equal: Mapping[tuple[str, str], bool]) -> list[int]:
    joined: Counter[str] = Counter()
    for answer, votes in wrong.items():
        equal_to = [first for first in joined if equal[first, answer]]
        if equal_to:
            joined[equal_to[0]] += votes
        else:
            joined[answer] = votes
    return list(joined.values())
