"""Statistical power: the smallest differences that a grid detects, and variance components."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from g2d.analysis import power
from g2d.analysis.crossed import stable
from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.experiment.sections import Frontier
from g2d.tables.evaluations import Evaluations, Row, by_grid, by_policy, clusters_of, crossed
from g2d.tables.families import ALIKE, families
from g2d.tables.frames import Rows, columns, table_of

SEEDS = (1, 2, 3, 5, 8, 12)
SEED_SDS = (0.005, 0.01, 0.02)  # standard deviations of accuracies: half a point, one, two
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
    """A row per family of tests of the K and number of seeds: the smallest differences and margins to be detected, null
    if the variance over seeds is unknown. `problems_needed` is for a difference of `target`, in 0..1.
    """
    for (model, benchmark), (rows, answers, clusters) in _alike(evaluations).items():
        _, n_seeds, n_problems = answers.shape
        design = power.Design(n_seeds, n_problems, len(answers))
        yield from _rows(model, benchmark, power.decompose(answers, clusters), family_sizes(rows), design, target)


@table_of(POWER_COLUMNS)
def planned_power(config: Config, n_problems: Mapping[str, int]) -> Rows:
    """The same rows before a grid has run, from the variances `ASSUMED`, for the first model."""
    target = (config.frontier or Frontier()).margin
    model = next(iter(config.models))
    policies = dict.fromkeys(key.over_seeds for key in grid.policies(config) if key.model == model)
    n_alike = sum(policy.role in ALIKE for policy in policies)
    for benchmark, n in n_problems.items() if n_alike > 1 else ():
        design = power.Design(len(config.seeds), n, n_alike)
        assumed = power.Decomposition(power.ASSUMED, math.nan, math.nan, math.nan)
        sizes = family_sizes([(policy, benchmark) for policy in policies])
        yield from _rows(model, benchmark, assumed, sizes, design, target)


@table_of(VARIANCE_COLUMNS)
def variance_table(evaluations: Evaluations) -> Rows:
    """A row per model and benchmark with at least two K: sources of variance of differences."""
    for (model, benchmark), (rows, answers, clusters) in _alike(evaluations).items():
        variance = power.decompose(answers, clusters)
        n_policies, n_seeds, n_problems = answers.shape
        parts = variance.components.of_difference(n_seeds, n_problems)
        sizes = family_sizes(rows)
        against = next(iter(sizes))
        now = power.Design(n_seeds, n_problems, n_policies, sizes[against])
        designs = now, replace(now, n_seeds=2 * n_seeds), replace(now, n_questions=2 * n_problems)
        smallest = [power.smallest_difference(variance.components, design) for design in designs]
        several = n_seeds > 1
        yield {
            **{"model": model, "benchmark": benchmark},
            **{"n_policies": n_policies, "n_seeds": n_seeds, "n_problems": n_problems},
            "seed_sd": variance.components.seed_sd,
            **{name: getattr(variance, name) for name in ("seed_sd_low", "seed_sd_high", "cancelled")},
            **{
                name: part / sum(parts) if several and sum(parts) else None
                for name, part in zip(("from_questions", "from_seeds", "from_answers"), parts, strict=True)
            },
            "difference": smallest[0],
            "difference_twice_seeds": smallest[1] if several else None,
            "difference_twice_questions": smallest[2],
            "more": ("seeds" if smallest[1] < smallest[2] else "questions") if several else None,
        }


def family_sizes(rows: Iterable[Row]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for _, family in families(rows):
        references = {reference for _, (reference, _) in family}
        if all(policy.role == "dpo" for (policy, _), _ in family) and {one.role for one in references} == {"dpo"}:
            sizes[NO_ONLINE if {one.k for one in references} == {0} else OTHERS] = len(family)
    return {against: sizes[against] for against in (NO_ONLINE, OTHERS) if against in sizes}


def _alike(evaluations: Evaluations) -> dict[tuple[str, str], tuple[list[Row], np.ndarray, np.ndarray | None]]:
    """Return the rows of each model and benchmark, the answers of its stable policies among `ALIKE` over the shared
    seeds, (n_policies, n_seeds, n_problems), and clusters; nothing without two such policies or a family."""
    grouped = by_policy(evaluations)
    alike = {}
    for place, rows in by_grid(grouped).items():
        answers = [crossed(grouped[at], at[1]) for at in rows if at[0].role in ALIKE]
        numbers = {len(correct) for correct in answers}
        if len(answers) > 1 and (len(numbers) == 1 or min(numbers) > 1) and family_sizes(rows):
            shared = np.stack([correct[: min(numbers)] for correct in answers])
            alike[place] = rows, shared[stable(shared.mean(axis=2))], clusters_of(grouped[rows[0]])
    return alike


def _rows(
    model: str,
    benchmark: str,
    variance: power.Decomposition,
    sizes: Mapping[str, int],
    design: power.Design,
    target: float,
) -> Rows:
    components = variance.components
    by_sd = {points: replace(components, policy_seed=sd**2) for sd, points in POINTS.items()}
    measured = None if math.isnan(components.policy_seed) else components
    least, most = (
        None if math.isnan(sd) else replace(components, policy_seed=sd**2)
        for sd in (variance.seed_sd_low, variance.seed_sd_high)
    )
    smallest_difference = partial(power.smallest_difference, measured or by_sd["1"])
    for against, family in sizes.items():
        for n_seeds in sorted({*SEEDS, design.n_seeds}):
            at = replace(design, n_seeds=n_seeds, family=family)
            yield {
                **{"model": model, "benchmark": benchmark, "against": against, "family_size": family},
                **{"n_problems": design.n_questions, "n_seeds": n_seeds, "this_grid": n_seeds == design.n_seeds},
                "seed_sd": measured and measured.seed_sd,
                "difference": measured and power.smallest_difference(measured, at),
                "difference_low": least and power.smallest_difference(least, at, shared=False),
                "difference_high": most and power.smallest_difference(most, at),
                "margin": measured and power.smallest_margin(measured, at),
                **{f"difference_sd_{points}": power.smallest_difference(by_sd[points], at) for points in by_sd},
                **{f"margin_sd_{points}": power.smallest_margin(by_sd[points], at) for points in by_sd},
                **{"target": target, "problems_needed": power.questions_needed(smallest_difference, target, at)},
            }
