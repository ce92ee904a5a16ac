"""Statistical power: the smallest differences that a design detects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from g2d.analysis import power
from g2d.experiment import grid
from g2d.experiment.config import Config
from g2d.tables.evaluations import Row
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
NO_ONLINE, OTHERS = "K=0", "every other K"


@table_of(POWER_COLUMNS)
def planned_power(config: Config, n_problems: Mapping[str, int]) -> Rows:
    """A row per family of tests of the K and number of seeds: the smallest differences and margins that a grid would
    detect, from the variances `ASSUMED`, for the first
    model."""
    target = config.margin
    model = next(iter(config.models))
    policies = dict.fromkeys(key.over_seeds for key in grid.policies(config) if key.model == model)
    n_alike = sum(policy.role in ALIKE for policy in policies)
    for benchmark, n in n_problems.items() if n_alike > 1 else ():
        design = power.Design(len(config.seeds), n, n_alike)
        assumed = power.Decomposition(power.ASSUMED, math.nan, math.nan, math.nan)
        sizes = family_sizes([(policy, benchmark) for policy in policies])
        yield from _rows(model, benchmark, assumed, sizes, design, target)


def family_sizes(rows: Iterable[Row]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for _, family in families(rows):
        references = {reference for _, (reference, _) in family}
        if all(policy.role == "dpo" for (policy, _), _ in family) and {one.role for one in references} == {"dpo"}:
            sizes[NO_ONLINE if {one.k for one in references} == {0} else OTHERS] = len(family)
    return {against: sizes[against] for against in (NO_ONLINE, OTHERS) if against in sizes}


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
