"""Parts of a gain: finishing within the token budget, writing a box that parses, and answering right.

    accuracy = P(finished) P(parseable | finished) P(correct | parseable, finished)

A factor's part is its Shapley value: the change that it makes, averaged over the six orders of change (Shapley 1953,
eq. 13; Shorrocks 2013). The parts add up to the gain.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd

from g2d.analysis.informativeness import PARSEABLE

UNFINISHED = ("truncated", "unfinished_thinking")  # verdicts
STEP = 1e-6  # step of the numerical derivative
FACTORS = ("finishing", "format", "reasoning")
STAGES = ("finished", "parseable", "correct")  # product of the factors so far


def stages(verdicts: pd.Series) -> pd.DataFrame:
    """Return which answers reached each of `STAGES`, boolean."""
    return pd.DataFrame(
        {
            "finished": ~verdicts.isin(UNFINISHED),
            "parseable": verdicts.isin(PARSEABLE),
            "correct": verdicts == "correct",
        }
    )


def factors(reached: np.ndarray) -> np.ndarray:
    """Return the conditional shares whose product is the accuracy, (3, ...); NaN if no answer reached the stage
    before."""
    reached = np.asarray(reached, dtype=float)
    before = np.concatenate([np.ones_like(reached[:1]), reached[:-1]])
    shares: np.ndarray = np.divide(reached, before, out=np.full_like(reached, np.nan), where=before > 0)
    return shares


def contributions(reference: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Return Shapley contributions of `FACTORS` to the policy's gain, (3, ...), from shares that reached `STAGES`.

    A factor that is undefined for one of the two is taken from the other; if for both, all contributions are 0.
    """
    of_reference = factors(reference)
    of_policy = factors(policy)
    old = np.nan_to_num(np.where(np.isnan(of_reference), of_policy, of_reference))
    new = np.nan_to_num(np.where(np.isnan(of_policy), of_reference, of_policy))
    total: np.ndarray = np.zeros_like(old)
    orders = list(permutations(range(3)))
    for order in orders:
        current = old.copy()
        for factor in order:
            before = current.prod(axis=0)
            current[factor] = new[factor]
            total[factor] += current.prod(axis=0) - before
    return total / len(orders)


def linearised(reference: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Return contributions by seed and question to first order (delta method), (3 factors, n_seeds, n_questions), from
    shares, (3 stages, n_seeds, n_questions). The means of the result are the contributions."""
    both = np.concatenate([reference, policy])
    means = both.mean(axis=(1, 2))
    center = contributions(means[:3], means[3:])
    values = np.broadcast_to(center[:, None, None], (3, *both.shape[1:])).copy()
    for stage, deviations in enumerate(both - means[:, None, None]):
        moved = np.stack([means, means], axis=1)
        moved[stage] += [-STEP, STEP]
        slope = np.diff(contributions(moved[:3], moved[3:]), axis=1)[:, 0] / (2 * STEP)
        values += slope[:, None, None] * deviations
    return values
