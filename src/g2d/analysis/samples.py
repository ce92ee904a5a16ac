"""Several answers to one problem: pass@k, and maj@n, the majority vote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from g2d.verifier.normalise import normalise

Equal = Callable[[Sequence[tuple[str, str]]], Sequence[bool]]  # whether the second answer equals the first, by pair


def pass_at_k(n: int, right: np.ndarray, k: int) -> np.ndarray:
    """The unbiased estimate of the chance that one of k samples is right: 1 - C(n - c, k) / C(n, k), where c of a
    problem's n samples are right (Chen et al. 2021, arXiv 2107.03374, equation 1).

    Raises:
        ValueError: k is not from 1 to n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} takes at least {k} samples; there are {n}")
    wrong = n - np.asarray(right, dtype=float)
    none_right = np.ones_like(wrong)
    for i in range(k):  # C(n - c, k) / C(n, k), factor by factor: 0 where fewer than k are wrong
        none_right *= np.clip(wrong - i, 0, None) / (n - i)
    return 1 - none_right


def powers_up_to(n: int) -> list[int]:
    """1, 2, 4, ... and n itself: the k of a table."""
    return sorted({2**i for i in range(n.bit_length()) if 2**i <= n} | {n})


def majority_right(answers: pd.DataFrame, equal: Equal) -> pd.Series:
    """maj@n: whether the answer that most samples of a problem have is the right one; of equally many, their share.

    Self-consistency (arXiv 2203.11171) over all n samples; docs/analysis.md says which answers count as one. A problem
    without votes is not solved.

    Returns:
        By problem_id, sorted, from 0 to 1.
    """
    votes = {name: _votes(own) for name, own in answers.groupby("problem_id", sort=True)}
    undecided = [wrong for right, wrong in votes.values() if _undecided(right, wrong)]
    pairs = list(dict.fromkeys(pair for wrong in undecided for pair in combinations(wrong, 2)))
    found = dict(zip(pairs, equal(pairs), strict=True))
    return pd.Series({name: _share(right, wrong, found) for name, (right, wrong) in votes.items()}, dtype=float)


def _votes(own: pd.DataFrame) -> tuple[int, Counter[str]]:
    """How many are right, and how many gave each of the wrong answers."""
    voted = own[own["extracted_answer"].fillna("").str.strip() != ""]
    is_right = voted["verdict"] == "correct"
    wrong = voted[~is_right]
    written = [
        answer if verdict == "limit" else normalise(answer)  # what is too large to parse is too large to rewrite
        for answer, verdict in zip(wrong["extracted_answer"], wrong["verdict"], strict=True)
    ]
    return int(is_right.sum()), Counter(written)


def _undecided(right: int, wrong: Counter[str]) -> bool:
    """Whether the vote depends on which wrong answers are equal: together they could have as many votes as the right
    one, and none has more alone."""
    return len(wrong) > 1 and max(wrong.values()) <= right <= sum(wrong.values())


def _share(right: int, wrong: Counter[str], equal: Mapping[tuple[str, str], bool]) -> float:
    """1 where the right answer wins, 0 where it loses, its share of a draw."""
    if not right:
        return 0.0
    counts = _joined(wrong, equal) if _undecided(right, wrong) else list(wrong.values())
    return 0.0 if max(counts, default=0) > right else 1 / (1 + counts.count(right))


def _joined(wrong: Counter[str], equal: Mapping[tuple[str, str], bool]) -> list[int]:
    """Votes of the wrong answers, each joined to the first one that it equals."""
    joined: Counter[str] = Counter()
    for answer, votes in wrong.items():
        joined[next((first for first in joined if equal[first, answer]), answer)] += votes
    return list(joined.values())
