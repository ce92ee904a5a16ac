"""Who is compared with whom, in which families of tests, and which policies were trained alike.

A family holds the comparisons of which a reader may pick one after seeing them: one regime's K (and G) against M0,
against DPO at K=0 or against GRPO whatever its G, or all pairs of K > 0, since "the best K against the next" is such a
pick. Within a family p-values are Holm-corrected and the intervals `family_low`, `family_high` hold all at once, so
what is picked keeps its 5 %. A family never spans models or benchmarks, each of which has its own answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from g2d.analysis.comparisons import LEVEL, compare
from g2d.analysis.statistics import holm
from g2d.experiment.grid import AUTO_REGIME, PolicyKey
from g2d.tables.evaluations import MAIN_REGIMES, Column, Evaluations, by_policy, crossed, grid_order, named

Row = tuple[Column, str]  # a policy over its seeds, on a benchmark
Grouped = Mapping[Row, Mapping[PolicyKey, pd.DataFrame]]

ALIKE = ("dpo", AUTO_REGIME)  # DPO on pairs of a harvest, whatever K and G: their seeds are taken to vary alike


def compared(evaluations: Evaluations) -> Iterator[dict[str, Any]]:
    """Rows of comparisons.csv: every family, each comparison with its Holm-corrected p and simultaneous interval.

    Raises:
        ValueError: two policies answered different problems, or have different seeds.
    """
    grouped = by_policy(evaluations, keep=lambda key: True)
    accuracies = {at: crossed(own, at[1]).mean(axis=1) for at, own in grouped.items()}
    for family in families(grouped):
        found = []
        for at, reference in family:
            policy, other = _paired(grouped, at, reference)
            found.append(compare(policy, other, _pool(grouped, accuracies, at, reference), len(family)))
        adjusted = holm([comparison.p_value for comparison in found])
        for (at, reference), comparison, p_holm in zip(family, found, adjusted, strict=True):
            other_name = named(next(iter(grouped[reference])), at[1])
            row = named(next(iter(grouped[at])), at[1]) | asdict(comparison)
            row |= {"family_size": len(family), "p_holm": float(p_holm)}
            if p_holm <= LEVEL:
                row |= _compatible(comparison.difference, comparison.family_low, comparison.family_high)
            yield row | {
                "reference": other_name["policy"],
                "reference_K": other_name["K"],
                "reference_group_size": other_name["group_size"],
            }


def families(grouped: Iterable[Row]) -> Iterator[list[tuple[Row, Row]]]:
    """Pairs (policy, reference) by family."""
    present = list(grouped)
    regimes = list(dict.fromkeys((*MAIN_REGIMES, *(column[1] for column, _ in present))))
    order = grid_order(present, regimes=regimes)
    for model, benchmark in dict.fromkeys((column[0], name) for column, name in order):
        own = [(column, name) for column, name in order if (column[0], name) == (model, benchmark)]
        baselines = [at for at in own if at[0][1] in ("base", "grpo") or at[0][1:] == ("dpo", 0, 0)]
        warmed = sorted((at for at in own if at[0][1] == "dpo" and at[0][3] > 0), key=lambda at: at[0][3])
        for regime in dict.fromkeys(column[1] for column, _ in own):
            members = [at for at in own if at[0][1] == regime]
            for kind in ("base", "dpo", "grpo") if regime in MAIN_REGIMES else ("base",):
                references = [at for at in baselines if at[0][1] == kind]
                yield [(at, other) for other in references for at in members if _worth_comparing(at[0], other[0])]
            if regime == "dpo":
                yield [(later, earlier) for earlier, later in combinations(warmed, 2)]
            if regime == AUTO_REGIME:
                yield [(at, fixed) for at in members for fixed in warmed]
            if regime not in MAIN_REGIMES:
                reference_regime = "grpo" if regime.split("/")[-1] == "grpo" else "dpo"  # as in Table 3
                same = [((model, reference_regime, *column[2:]), benchmark) for column, _ in members]
                yield [(at, reference) for at, reference in zip(members, same, strict=True) if reference in own]


def _worth_comparing(policy: Column, reference: Column) -> bool:
    """M0 is a reference only, nothing is compared with itself, and GRPO with M0 only."""
    if policy == reference or policy[1] == "base":
        return False
    return policy[1] != "grpo" or reference[1] == "base"


def _paired(grouped: Grouped, at: Row, reference: Row) -> tuple[np.ndarray, np.ndarray]:
    """Answers of both, (n_seeds, n_problems), seed by seed and problem by problem."""
    both = grouped[reference], grouped[at]
    seeds = [[key.seed for key in side] for side in both]
    if seeds[0] not in ([None], seeds[1]):
        raise ValueError(
            f"{next(iter(both[1])).folder} has seeds {seeds[1]} and {next(iter(both[0])).folder} {seeds[0]}: "
            "policies are compared seed by seed"
        )
    correct = crossed({**both[0], **both[1]}, at[1])
    return correct[len(both[0]) :], correct[: len(both[0])]


def _pool(grouped: Grouped, accuracies: Mapping[Row, np.ndarray], at: Row, reference: Row) -> np.ndarray:
    """Accuracies per seed of the policies that were trained alike, and of the two, (n_policies, n_seeds)."""
    seeds = [key.seed for key in grouped[at]]
    (model, *_), benchmark = at
    alike = [
        row
        for row, own in grouped.items()
        if (row[0][0], row[1]) == (model, benchmark)
        and (row[0][1] in ALIKE or row in (at, reference))
        and [key.seed for key in own] == seeds
    ]
    return np.stack([accuracies[row] for row in alike])


def _compatible(difference: float, low: float, high: float) -> dict[str, float]:
    """The simultaneous interval where Holm's procedure, which rejects more than Bonferroni's, excludes 0: it ends there
    (Strassburger and Bretz 2008, "Compatible simultaneous lower confidence bounds for the Holm procedure")."""
    return {"family_low": max(low, 0.0)} if difference > 0 else {"family_high": min(high, 0.0)}
