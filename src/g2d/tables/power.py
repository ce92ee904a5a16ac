"""What a grid can see, and what more seeds or more questions would change: before it runs, from assumptions, and
afterwards, from the variance that its own answers show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from g2d.analysis import power
from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.sections import Frontier
from g2d.tables.evaluations import Evaluations, Row, by_grid, by_policy, clusters_of, crossed
from g2d.tables.families import ALIKE, families
from g2d.tables.frames import Rows, columns, table_of

SEEDS = (1, 2, 3, 5, 8, 12)
SEED_SDS = (0.005, 0.01, 0.02)  # of accuracies: half a point, one, two
POINTS = {sd: f"{100 * sd:g}" for sd in SEED_SDS}
POWER_COLUMNS = columns(
    "model benchmark against family_size n_problems n_seeds this_grid seed_sd",
    *("difference difference_low difference_high", *(f"difference_sd_{points}" for points in POINTS.values())),
    *("margin", *(f"margin_sd_{points}" for points in POINTS.values())),
    "target problems_needed",
)
VARIANCE_COLUMNS = columns(
    "model benchmark n_policies n_seeds n_problems seed_sd seed_sd_low seed_sd_high cancelled",
    "from_questions from_seeds from_answers difference difference_twice_seeds difference_twice_questions more",
)
NO_ONLINE, OTHERS = "K=0", "every other K"


@table_of(POWER_COLUMNS)
def power_table(evaluations: Evaluations, target: float) -> Rows:
    """What this grid, and one with other numbers of seeds, can see in every family of tests of the K, by the variance
    of its own answers; null where nothing is known of seeds, and where 20,000 problems do not suffice.

    Args:
        target: the difference that `problems_needed` is for, in 0..1.
    """
    for (model, benchmark), (known, answers, clusters) in _alike(evaluations).items():
        _, n_seeds, n_problems = answers.shape
        found, design = power.decompose(answers, clusters), power.Design(n_seeds, n_problems, len(answers))
        yield from _rows(model, benchmark, found, known, design, target)


@table_of(POWER_COLUMNS)
def planned_power(config: Config, n_problems: Mapping[str, int]) -> Rows:
    """The same before anything has run, by `ASSUMED`: the first model's families on the benchmarks whose number of
    problems is known, for the target `frontier.margin`."""
    target = (config.frontier or Frontier()).margin
    model = next(iter(config.models))
    policies = dict.fromkeys(key.over_seeds for key in grid.policies(config) if key.model == model)
    alike = sum(policy.role in ALIKE for policy in policies)
    for benchmark, n in n_problems.items() if alike > 1 else ():
        design = power.Design(len(config.seeds), n, alike)
        assumed = power.Decomposition(power.ASSUMED, math.nan, math.nan, math.nan)
        yield from _rows(model, benchmark, assumed, [(policy, benchmark) for policy in policies], design, target)


@table_of(VARIANCE_COLUMNS)
def variance_table(evaluations: Evaluations) -> Rows:
    """Where the variance of the differences between policies comes from, and what would make it smaller, for every
    model and benchmark with at least two K; of seeds null with one."""
    for (model, benchmark), (known, answers, clusters) in _alike(evaluations).items():
        found = power.decompose(answers, clusters)
        n_policies, n_seeds, n_problems = answers.shape
        parts = found.components.of_difference(n_seeds, n_problems)
        sizes = family_sizes(known)
        against = next(iter(sizes))
        now = power.Design(n_seeds, n_problems, n_policies, sizes[against])
        designs = now, replace(now, n_seeds=2 * n_seeds), replace(now, n_questions=2 * n_problems)
        seen = [power.smallest_difference(found.components, design) for design in designs]
        several = n_seeds > 1
        yield {
            **{"model": model, "benchmark": benchmark},
            **{"n_policies": n_policies, "n_seeds": n_seeds, "n_problems": n_problems},
            "seed_sd": found.components.seed_sd,
            **{"seed_sd_low": found.seed_sd_low, "seed_sd_high": found.seed_sd_high, "cancelled": found.cancelled},
            **{
                name: part / sum(parts) if several and sum(parts) else None
                for name, part in zip(("from_questions", "from_seeds", "from_answers"), parts, strict=True)
            },
            "difference": seen[0],
            "difference_twice_seeds": seen[1] if several else None,
            "difference_twice_questions": seen[2],
            "more": ("seeds" if seen[1] < seen[2] else "questions") if several else None,
        }


def family_sizes(known: Iterable[Row]) -> dict[str, int]:
    """How many comparisons the tests of one K against another are corrected for, by what they are made against."""
    sizes: dict[str, int] = {}
    for _, family in families(known):
        references = {reference for _, (reference, _) in family}
        if all(policy.role == "dpo" for (policy, _), _ in family) and {one.role for one in references} == {"dpo"}:
            sizes[NO_ONLINE if {one.k for one in references} == {0} else OTHERS] = len(family)
    return {against: sizes[against] for against in (NO_ONLINE, OTHERS) if against in sizes}


def _alike(evaluations: Evaluations) -> dict[tuple[str, str], tuple[list[Row], np.ndarray, np.ndarray | None]]:
    """By model and benchmark, all policies, the answers, (n_policies, n_seeds, n_problems), of those that were trained
    alike, over the first seeds, which all have, and the clusters of problems; at least two such policies, whose tests
    belong to some family."""
    grouped = by_policy(evaluations)
    alike = {}
    for place, known in by_grid(grouped).items():
        answers = [crossed(grouped[at], at[1]) for at in known if at[0].role in ALIKE]
        numbers = {len(own) for own in answers}
        if len(answers) > 1 and (len(numbers) == 1 or min(numbers) > 1) and family_sizes(known):
            together = np.stack([own[: min(numbers)] for own in answers])
            alike[place] = known, together, clusters_of(grouped[known[0]])
    return alike


def _rows(
    model: str, benchmark: str, found: power.Decomposition, known: Iterable[Row], design: power.Design, target: float
) -> Rows:
    components = found.components
    by_sd = {points: replace(components, policy_seed=sd**2) for sd, points in POINTS.items()}
    own = None if math.isnan(components.policy_seed) else components
    least, most = (
        None if math.isnan(sd) else replace(components, policy_seed=sd**2)
        for sd in (found.seed_sd_low, found.seed_sd_high)
    )
    sees = partial(power.smallest_difference, own or by_sd["1"])
    for against, family in family_sizes(known).items():
        for n_seeds in sorted({*SEEDS, design.n_seeds}):
            at = replace(design, n_seeds=n_seeds, family=family)
            yield {
                **{"model": model, "benchmark": benchmark, "against": against, "family_size": family},
                **{"n_problems": design.n_questions, "n_seeds": n_seeds, "this_grid": n_seeds == design.n_seeds},
                "seed_sd": own and own.seed_sd,
                "difference": own and power.smallest_difference(own, at),
                "difference_low": least and power.smallest_difference(least, at, shared=False),
                "difference_high": most and power.smallest_difference(most, at),
                "margin": own and power.smallest_margin(own, at),
                **{f"difference_sd_{points}": power.smallest_difference(by_sd[points], at) for points in by_sd},
                **{f"margin_sd_{points}": power.smallest_margin(by_sd[points], at) for points in by_sd},
                **{"target": target, "problems_needed": power.questions_needed(sees, target, at)},
            }
