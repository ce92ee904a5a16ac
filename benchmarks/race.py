"""Errors, decisions and savings of a race against the design with all seeds, in simulations with known truth through
`g2d.analysis.looks.take_look`. Prints tables of docs/simulations.md.

Policies are compared with the first one. Accuracy is 70 %. A policy answers some questions in the same way with every
seed (a standard deviation of its mean of .9 points, shared by all looks), 4 % of all answers are by chance, and its
seeds differ in accuracy.

    python benchmarks/race.py [errors savings] [--runs 50]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from g2d.analysis.looks import SETTLED, Asked, Compared, Look, Plan, take_look

ACCURACY, QUESTIONS, MOST_SEEDS = 0.7, 500, 8
SHARED, CHANCE = 0.009, 0.04  # sd of a mean over the questions; share of answers that are given afresh every time
MARGIN = 5.0  # points
COSTS = np.array([1.0, 1.5, 2.0, 3.0, 4.0])  # cost of a seed: 1, and its online steps
TRUTHS = {  # points, by policy
    "all equal": (0, 0, 0, 0, 0),
    "one 3 ahead": (0, 0, 0, 3, 0),
    "one 5 ahead": (0, 0, 0, 5, 0),
    "one 8 ahead": (0, 0, 0, 8, 0),
    "a ladder": (0, 2, 4, 6, 8),
    "all 8 above K=0": (0, 8, 8, 8, 8),
}
DENSE, SPARSE = (2, 3, 4, 5, 6, 7, 8), (2, 3, 5, 8)
SPREADS = (0.5, 1.0, 2.0)  # sd of seeds in points


def answers(rng: np.random.Generator, truth: Sequence[float], spread: np.ndarray) -> np.ndarray:
    """Right or wrong, (policies, seeds, questions); truth and spread (sd of seeds) in points."""
    n = len(truth)
    shape = (n, MOST_SEEDS, QUESTIONS)

    def afresh(share: float, before: np.ndarray, n_seeds: int) -> np.ndarray:
        some = (n, n_seeds, QUESTIONS)
        return np.where(rng.random(some) < share, rng.random(some) < ACCURACY, before)

    of_policy = SHARED**2 * QUESTIONS / (ACCURACY * (1 - ACCURACY))
    right = afresh(CHANCE, afresh(of_policy, rng.random(QUESTIONS) < ACCURACY, 1), MOST_SEEDS)
    shift = (np.array(truth)[:, None] + rng.normal(size=shape[:2]) * spread[:, None]) / 100
    moved = rng.random(shape) < np.where(shift > 0, shift / (1 - ACCURACY), -shift / ACCURACY)[..., None]
    return np.where(moved, shift[..., None] > 0, right).astype(float)


def plan_of(n_policies: int, looks: Sequence[int]) -> Plan:
    names = [str(i) for i in range(n_policies)]
    comparisons = tuple(Asked("K=0", name, "0") for name in names[1:])
    return Plan(tuple(looks), comparisons, MARGIN / 100, alike=tuple(names), steps="holm")


def race(plan: Plan, right: np.ndarray) -> list[Look]:
    results = {str(i): answered for i, answered in enumerate(right)}
    looks = [take_look(plan, results)]
    while looks[-1].next:
        looks.append(take_look(plan, results, looks))
    return looks


def is_wrong(comparison: Compared, truth: Sequence[float]) -> bool:
    difference = truth[int(comparison.policy)] - truth[int(comparison.reference)]
    return (comparison.verdict == "within" and abs(difference) >= MARGIN) or (
        comparison.verdict in ("better", "worse") and difference * (1 if comparison.verdict == "better" else -1) <= 0
    )


def misses(looks: Iterable[Look], truth: Sequence[float]) -> bool:
    """Whether a repeated interval of any look misses a true difference."""
    every = [comparison for look in looks for comparison in look.comparisons if comparison.n_seeds]
    true = [(truth[int(comparison.policy)] - truth[int(comparison.reference)]) / 100 for comparison in every]
    return any(not comparison.low <= value <= comparison.high for comparison, value in zip(every, true, strict=True))


def hours(last: Look, chained: bool = False) -> float:
    """Return the hours of all seeds. A chain makes the online steps of a seed (its cost minus 1) once, for the largest
    K."""
    seeds = {int(policy.policy): policy.seeds for policy in last.policies}
    if not chained:
        return float(sum(n * COSTS[i] for i, n in seeds.items()))
    online = (max(COSTS[i] - 1 for i, n in seeds.items() if n >= seed) for seed in range(1, max(seeds.values()) + 1))
    return float(sum(seeds.values()) + sum(online))


def errors(runs: int) -> None:
    """Races of equally good policies, and of policies of which every second is exactly the margin ahead."""
    print("| policies | sd of seeds | equal: an interval misses | half are the margin ahead: errs |")
    print("|---:|---:|---:|---:|")
    for n, (name, low, high) in (
        (n, spread) for n in (3, 12) for spread in (("0", 0, 0), ("1", 1, 1), ("2", 2, 2), ("1 or 2", 1, 2))
    ):
        rng, outcomes = np.random.default_rng([n, *name.encode()]), []
        for run in range(runs):
            spread = np.full(n, float(low))
            spread[run % 2] = high  # the reference or the first K, in turn: variances 4 to 1
            plan, equal = plan_of(n, DENSE), np.zeros(n)
            looks = race(plan, answers(rng, equal, spread))
            ahead = np.where(np.arange(n) % 2, MARGIN, 0.0)
            other = race(plan, answers(rng, ahead, spread))[-1]
            outcomes.append(
                (
                    misses(looks, equal),
                    any(is_wrong(comparison, ahead) for comparison in other.comparisons),
                )
            )
        cells = " | ".join(f"{share:.1%}" for share in np.mean(outcomes, axis=0))
        print(f"| {n} | {name} | {cells} |", flush=True)


def savings(runs: int) -> None:
    """Hours and decisions of a race, against all eight seeds tested once: means over `SPREADS`."""
    plans = {"looks at 2 to 8": plan_of(5, DENSE), "looks at 2, 3, 5, 8": plan_of(5, SPARSE)}
    print("| truth | 8 seeds: decided |" + "".join(f" {p}: hours | decided |" for p in plans))
    print("|---|" + "---:|" * (1 + 2 * len(plans)))
    everything = []
    for (name, truth), sd in itertools.product(TRUTHS.items(), SPREADS):
        rng, rows = np.random.default_rng([len(everything)]), []
        for _ in range(runs):
            right = answers(rng, truth, np.full(5, sd))
            fixed = race(plan_of(5, (MOST_SEEDS,)), right)[-1]
            row = [_decided(fixed)]
            for plan in plans.values():
                last = race(plan, right)[-1]
                row += [hours(last) / hours(fixed), _decided(last), hours(last, True) / hours(fixed, True)]
            rows.append(row)
        everything.append(np.mean(rows, axis=0))
        if sd == max(SPREADS):
            _row(f"| {name} |", np.mean(everything[-len(SPREADS) :], axis=0))
    _row("| mean |", np.mean(everything, axis=0))
    print(f"hours if a chain makes the largest K pay for the smaller: {np.mean(everything, axis=0)[[3, 6]].round(3)}")


def _decided(last: Look) -> float:
    """Return the share of comparisons with a verdict."""
    return float(np.mean([comparison.verdict in SETTLED for comparison in last.comparisons]))


def _row(name: str, values: np.ndarray) -> None:
    cells = [f" {values[0]:.3f} |", *(f" {h:.3f} | {d:.3f} |" for h, d, _ in values[1:].reshape(-1, 3))]
    print(name + "".join(cells), flush=True)


if __name__ == "__main__":
    parts = {"errors": errors, "savings": savings}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    parser.add_argument("--runs", type=int, default=50)
    chosen = parser.parse_args()
    for part in chosen.parts or parts:
        parts[part](chosen.runs)
        print()
