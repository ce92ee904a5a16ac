"""Power tables against the tests' power in simulated answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from g2d.analysis.comparisons import LEVEL, compare
from g2d.analysis.crossed import SeedPool
from g2d.analysis.margins import Differences, smallest_margins
from g2d.analysis.power import Components, Design, decompose, questions_needed, smallest_difference, smallest_margin

ACCURACY, TRAINED, ASKED = 0.7, 0.08, 0.06  # shares of questions that every training, every policy answers afresh


def experiment(rng: np.random.Generator, design: Design, seed_sd: float, gain: float = 0.0) -> np.ndarray:
    """Right and wrong answers, (n_policies, n_seeds, n_questions); the first policy gains on some questions."""
    shape = (max(design.n_policies, 2), design.n_seeds, design.n_questions)
    settled = rng.random((1, shape[2])) < ACCURACY

    def afresh(answers: np.ndarray, share: float, size: tuple[int, ...]) -> np.ndarray:
        return np.where(rng.random(size) < share, rng.random(size) < ACCURACY, answers)

    settled = afresh(afresh(settled, ASKED, (shape[0], 1, shape[2])), TRAINED, shape)
    shift = rng.normal(0, seed_sd, shape[:2])
    settled[0] |= rng.random(shape[2]) < gain / (1 - ACCURACY)
    chance = np.where(shift > 0, shift / (1 - ACCURACY), -shift / ACCURACY)[..., None]
    return np.where(rng.random(shape) < chance, shift[..., None] > 0, settled).astype(float)


@pytest.fixture(scope="module")
def components() -> Components:
    """Components of these answers without a variance between seeds."""
    return decompose(experiment(np.random.default_rng(0), Design(4, 20_000, 4), 0.0)).components


@pytest.mark.parametrize(
    ("design", "seed_sd", "shared"),
    [
        (Design(1, 400, 4, 3), 0.0, True),
        (Design(2, 400, 4, 3), 0.01, True),
        (Design(3, 400, 5, 4), 0.01, True),
        (Design(8, 300, 4, 3), 0.02, True),
        (Design(5, 400, 4, 3), 0.005, False),  # a difference of the size for shared gains would be found in 96 %
    ],
)
def test_the_smallest_difference_is_found_in_four_of_five_experiments(
    design: Design, seed_sd: float, shared: bool, components: Components
) -> None:
    """With `shared`, gains are on the same questions in every training, else on other ones."""
    stated = smallest_difference(replace(components, policy_seed=seed_sd**2), design, shared)
    rng, runs, n_significant = np.random.default_rng(3), 250, 0
    for _ in range(runs):
        policies = experiment(rng, design, seed_sd, stated if shared else 0.0)
        if not shared:
            policies[0] = np.maximum(policies[0], rng.random(policies[0].shape) < stated / (1 - ACCURACY))
        pool = SeedPool.without_unstable(policies.mean(axis=2), (0, 1))
        n_significant += compare(policies[0], policies[1], pool).p_value <= LEVEL / design.family
    assert 0.74 <= n_significant / runs <= (0.92 if shared else 0.88), n_significant / runs


def test_seeds_and_questions_make_everything_smaller(components: Components) -> None:
    noisy, few = replace(components, policy_seed=0.01**2), Design(3, 200, 4, 3)
    for sees in (smallest_difference, smallest_margin):
        now = sees(noisy, few)
        assert sees(noisy, replace(few, n_seeds=12)) < now
        assert sees(noisy, replace(few, n_questions=800)) < now
        assert sees(replace(components, policy_seed=0.03**2), few) > now
    assert smallest_difference(noisy, replace(few, family=10)) > smallest_difference(noisy, few)


def test_the_questions_that_are_needed_are_enough_and_hardly_more(components: Components) -> None:
    design = Design(8, 100, 4, 3)

    def sees(other: Design) -> float:
        return smallest_difference(components, other)

    needed = questions_needed(sees, 0.04, design)
    assert sees(replace(design, n_questions=needed)) <= 0.04 < sees(replace(design, n_questions=round(0.9 * needed)))
    assert questions_needed(lambda other: 1.0, 0.04, design) is None


def test_the_smallest_margin_is_shown_in_four_of_five_experiments(components: Components) -> None:
    design, seed_sd = Design(3, 400, 4), 0.01
    stated = smallest_margin(replace(components, policy_seed=seed_sd**2), design)
    rng, runs, shown = np.random.default_rng(4), 160, 0
    for _ in range(runs):
        policies = experiment(rng, design, seed_sd)
        means = policies.mean(axis=2)
        differences = Differences(list(policies), lambda i, j, means=means: SeedPool.without_unstable(means, (i, j)))
        shown += smallest_margins(differences, 0.02)[0].margin_shown <= stated
    assert 0.7 <= shown / runs <= 0.9, shown / runs
