"""Power of a grid's tests, and the variance components of answers that it follows from.

Effects of questions and seeds that all policies share cancel in a paired difference. Their interactions with policies
are estimated by the three-way analysis of variance without replication (Searle, Casella and McCulloch 1992, section
4.3). Experiments without a difference are simulated from them and tested as in `g2d.analysis.crossed`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from g2d.analysis.comparisons import LEVEL
from g2d.analysis.crossed import Error, SeedPool, clustered, seed_variance

POWER = 0.8
DRAWS = 400  # leaves a standard error of a tenth of the difference's own
MOST_QUESTIONS = 20_000  # limit of a plan


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of one answer in 0..1."""

    policy_question: float  # interaction of policy and question
    policy_seed: float  # interaction of policy and seed; NaN with one seed
    answer: float  # residual of single answers; with one seed 0, because it is part of policy_question

    @property
    def seed_sd(self) -> float:
        """Standard deviation of a policy's accuracy over seeds, without the noise of single answers."""
        return math.sqrt(self.policy_seed)

    def of_difference(self, n_seeds: int, n_questions: int) -> tuple[float, float, float]:
        """Return variances of the difference between two mean accuracies from questions, seeds and single answers."""
        seeds = 0.0 if math.isnan(self.policy_seed) else self.policy_seed
        return (
            2 * self.policy_question / n_questions,
            2 * seeds / n_seeds,
            2 * self.answer / (n_seeds * n_questions),
        )


@dataclass(frozen=True, slots=True)
class Decomposition:
    components: Components
    seed_sd_low: float  # 95 % interval of `seed_sd`; NaN with one seed
    seed_sd_high: float
    cancelled: float  # share of an accuracy's variance over questions that pairing by question removes


def decompose(answers: np.ndarray, clusters: np.ndarray | None = None) -> Decomposition:
    """Return the variance components from (n_policies, n_seeds, n_questions) shares of right answers, at least two
    policies and questions.

    Negative estimates are set to zero. The interval of `seed_sd` inverts the chi-square distribution of the seeds' mean
    square, with the noise of single answers taken as known. Clusters give the components of independent questions
    with the same variance of the mean.
    """
    answers = np.stack([clustered(values, clusters) for values in answers])
    n_policies, n_seeds, n_questions = answers.shape
    per_cluster = 1.0 if clusters is None else len(clusters) / n_questions
    left = answers - answers.mean(axis=0)
    left -= left.mean(axis=(1, 2), keepdims=True)
    by_question, by_seed = left.mean(axis=1), left.mean(axis=2)
    question_square = n_seeds * float((by_question**2).sum()) / ((n_policies - 1) * (n_questions - 1))
    of_accuracy = float(answers.mean(axis=1).var(axis=1, ddof=1).mean())
    cancelled = 1 - question_square / n_seeds / of_accuracy if of_accuracy else math.nan
    if n_seeds == 1:
        return Decomposition(Components(question_square * per_cluster, math.nan, 0.0), math.nan, math.nan, cancelled)
    rest = left - by_question[:, None] - by_seed[..., None]
    degrees = (n_policies - 1) * (n_seeds - 1)
    seed_square = n_questions * float((by_seed**2).sum()) / degrees
    answer = float((rest**2).sum()) / (degrees * (n_questions - 1))

    def seed_variance(square: float) -> float:
        return max(square - answer, 0.0) / n_questions

    low, high = (seed_square * degrees / float(scipy.special.chdtri(degrees, tail)) for tail in (0.025, 0.975))
    question = max(question_square - answer, 0.0) / n_seeds
    components = Components(question * per_cluster, seed_variance(seed_square), answer * per_cluster)
    return Decomposition(components, math.sqrt(seed_variance(low)), math.sqrt(seed_variance(high)), cancelled)


# Two policies differ in 15 % of their answers, and in a sixth of these for every seed.
ASSUMED = Components(policy_question=0.0125, policy_seed=0.01**2, answer=0.0625)


@dataclass(frozen=True, slots=True)
class Design:
    n_seeds: int
    n_questions: int
    n_policies: int  # trained alike: the variance between few seeds is pooled over them
    family: int = 1  # comparisons of which one may be chosen afterwards


@functools.lru_cache(maxsize=4096)
def smallest_difference(components: Components, design: Design, shared: bool = True) -> float:
    """Return the true difference in accuracy, at most 1, that is found with 80 % power at level 5 % / family;
    an unknown variance between seeds counts as 0.

    Args:
        shared: the difference is on the same questions with every seed (harder to find), else on other questions.
    """
    drawn = _experiments(components, replace(design, family=1))
    differences, errors = drawn.against(1)
    seeds = 1 if shared else design.n_seeds
    effect = 0.0
    for _ in range(4):  # an effect changes answers, and so the error
        changed = effect * (1 - effect) / design.n_questions / seeds
        reach, moved = errors.reach(LEVEL / design.family, changed), math.sqrt(changed) * drawn.of_effect
        missed = [reach - differences - moved, reach + differences + moved]  # equally likely: fewer draws are needed
        effect = min(float(np.quantile(missed, POWER)) / drawn.shrunk, 1.0)
    return effect


@functools.lru_cache(maxsize=4096)
def smallest_margin(components: Components, design: Design) -> float:
    """Return the margin that is shown with 80 % power if all policies are equally good (`g2d.analysis.margins`);
    `design.family` is not used."""
    others = design.n_policies - 1
    drawn = _experiments(components, replace(design, family=1))
    bounds = np.zeros(DRAWS)
    for other in range(1, others + 1):
        differences, errors = drawn.against(other)
        bounds = np.maximum(bounds, errors.reach(2 * LEVEL / others) - differences)
    return min(float(np.quantile(bounds, POWER)), 1.0)


def questions_needed(sees: Callable[[Design], float], target: float, design: Design) -> int | None:
    """Return the fewest questions, to two digits, for which `sees` is at most the target; None if `MOST_QUESTIONS` are
    too few."""
    low, high = 10, MOST_QUESTIONS
    if sees(replace(design, n_questions=high)) > target:
        return None
    while high > 1.02 * low:
        middle = round(math.sqrt(low * high))
        low, high = (low, middle) if sees(replace(design, n_questions=middle)) <= target else (middle, high)
    unit = 10 ** max(len(str(high)) - 2, 0)
    return -(-high // unit) * unit


@dataclass(frozen=True)
class _Errors:
    questions: float
    question_degrees: int
    seeds: np.ndarray | float = 0.0
    seed_degrees: np.ndarray | int = 1
    noise: float = 0.0

    def reach(self, alpha: float, changed: float = 0.0) -> np.ndarray:
        """Return `Error.reach` of every experiment, with `changed` more variance from questions."""
        q = Error(1.0, self.question_degrees).reach(alpha)
        s = -scipy.special.stdtrit(self.seed_degrees, alpha / 2)
        seeds = np.maximum(s * np.sqrt(self.seeds), q * math.sqrt(self.noise))
        return np.asarray(np.hypot(q * math.sqrt(self.questions + changed), seeds))


class _Experiments:
    def __init__(self, components: Components, design: Design) -> None:
        rng = np.random.default_rng(0)
        self.design, self.per_question = design, components.policy_question
        self.noise = components.answer / design.n_questions  # variance that single answers give an accuracy
        seeds = 0.0 if math.isnan(components.policy_seed) or design.n_seeds == 1 else components.policy_seed
        shape = (DRAWS, max(design.n_policies, 2), design.n_seeds)
        # Deviations by seeds and single answers, by questions, and of an effect by questions (standard normal).
        self.accuracies = rng.normal(0, math.sqrt(seeds + self.noise), shape)
        self.of_questions = rng.normal(0, math.sqrt(self.per_question / design.n_questions), shape[:2])
        self.of_effect = rng.normal(size=DRAWS)
        self.shrunk = design.n_questions / (design.n_questions + 2)  # shrinkage by `error_of_difference`

    @functools.lru_cache(maxsize=64)  # noqa: B019  (of few objects, and few of them)
    def against(self, other: int) -> tuple[np.ndarray, _Errors]:
        """Return differences of the first policy from another one, with errors as by `crossed.error_of_difference`; all
        experiments have the expected variance over questions."""
        n_seeds, n_questions, total = self.design.n_seeds, self.design.n_questions, self.design.n_questions + 2
        deltas = self.accuracies[:, 0] - self.accuracies[:, other]
        questions = self.of_questions[:, 0] - self.of_questions[:, other]
        differences = (deltas.mean(axis=1) + questions) * self.shrunk
        noise = 2 * self.noise / n_seeds
        square = (n_questions * (2 * self.per_question + n_questions * noise) + 2) / total**2
        if n_seeds == 1:
            return differences, _Errors(square, total - 1)
        variances = deltas.var(axis=1, ddof=1) / n_seeds
        pools = (SeedPool.without_unstable(p, (0, other)) for p in self.accuracies)
        used = [seed_variance(float(v), noise, pool, True) for v, pool in zip(variances, pools, strict=True)]
        seeds, _, degrees = np.array(used).T
        return differences, _Errors(max(square - noise, 0.0), total - 1, seeds, degrees.clip(max=total - 1), noise)


_experiments = functools.lru_cache(maxsize=64)(_Experiments)
