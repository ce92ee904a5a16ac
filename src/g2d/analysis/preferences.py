"""Win rates of a policy's replies against M0's, and rewards, raw and at equal length."""

from __future__ import annotations

import numpy as np
import scipy

RIDGE = 0.1  # penalty on the coefficient of length, so that it is finite if the longer reply always wins

# Smallest share of comparisons on either side for a rate at equal length.
OVERLAP = 0.02
AT_LEAST = 5


def preferences(scores: np.ndarray, base_scores: np.ndarray) -> np.ndarray:
    """Return 1 if the first is preferred, 0 if the second is, 1/2 for a tie; NaN if one has no score."""
    won = 0.5 + 0.5 * np.sign(scores - base_scores)
    return np.where(np.isfinite(scores) & np.isfinite(base_scores), won, np.nan)


def raw(won: np.ndarray) -> np.ndarray:
    """Return the share won by seed and prompt, from (n_seeds, n_prompts, n_samples) `preferences`."""
    return np.asarray(np.nanmean(won, axis=2))


def share_longer(longer: np.ndarray) -> float:
    return float((0.5 + 0.5 * np.sign(longer)).mean())


def overlaps(longer: np.ndarray) -> bool:
    """Return whether enough replies are longer, and enough shorter, than M0's for a comparison."""
    share = share_longer(longer)
    fewer = min(share, 1 - share)
    return fewer >= OVERLAP and fewer * longer.size >= AT_LEAST


def length_controlled(won: np.ndarray, longer: np.ndarray) -> np.ndarray | None:
    """Return values as `raw` whose mean is the win rate at equal length; None if lengths hardly overlap.

    The preference is regressed on tanh(longer / its standard deviation), ties as half a win (AlpacaEval 2: Dubois et
    al. 2024, arXiv 2404.04475, section 3), and evaluated at 0. The values are the influence function of the intercept
    by prompt and seed, so answers stay clustered.

    Args:
        longer: excess length of the policy's reply over M0's, with the shape of `won`.
    """
    cells = raw(won)
    judged = np.isfinite(won)
    spread = float(longer[judged].std())
    if longer[judged].any() and not overlaps(longer[judged]):
        return None
    if spread == 0 or cells.mean() in (0, 1):  # nothing to regress on, or nothing to explain
        return cells
    x = np.tanh(np.where(judged, longer, 0.0) / spread)
    weights = judged / judged.sum(axis=2, keepdims=True)
    y = np.where(judged, won, 0.0)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        at = theta[0] + theta[1] * x
        off = weights * (scipy.special.expit(at) - y)
        value = (weights * (np.logaddexp(0, at) - y * at)).sum() + RIDGE / 2 * theta[1] ** 2
        return float(value), np.array([off.sum(), (off * x).sum() + RIDGE * theta[1]])

    theta = scipy.optimize.minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    fitted = scipy.special.expit(theta[0] + theta[1] * x)
    curved = weights * fitted * (1 - fitted)
    hessian = np.array([[curved.sum(), (curved * x).sum()], [(curved * x).sum(), (curved * x**2).sum() + RIDGE]])
    own, other = np.linalg.inv(hessian)[0]
    influence = (weights * (y - fitted) * (own + other * x)).sum(axis=2) * cells.size
    rate = float(scipy.special.expit(theta[0]))
    return np.asarray(rate + rate * (1 - rate) * (influence - influence.mean()))
