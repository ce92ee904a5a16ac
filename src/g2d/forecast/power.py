"""Smallest differences that the tests of a design could find, for `g2d plan`.

The test is `g2d.analysis.statistics.error_of_difference`, with the variances that it is expected to estimate. Answers
to the questions of a cluster are taken as equal. docs/simulations.md has how often simulated differences of this size
are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypedDict

from g2d.analysis.statistics import LEVEL, POWER, Error, question_degrees
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.markdown import literal
from g2d.problems.problem import Problem, read_problems
from g2d.problems.problem_keys import HubProblems, ProblemSource, SyntheticProblems
from g2d.problems.sources import load_problems
from g2d.tables.families import planned_pairs

SEEDS = (3, 5, 8)
LARGEST = 0.5  # difference that is printed
# Standard deviations of a policy's accuracy: one point, two and five as of SmolLM2-135M (docs/smollm2.md), and ten.
SEED_SDS = (0.01, 0.02, 0.05, 0.1)
# Two policies differ in 15 % of their answers, and in a sixth of these for every seed.
DIFFER = 0.15
FOR_EVERY_SEED = DIFFER / 6


@dataclass(frozen=True)
class Size:
    """Numbers of problems of a benchmark, and of their clusters."""

    problems: int
    clusters: int

    def __str__(self) -> str:
        words = f"{self.problems:,} problems"
        if self.clusters < self.problems:
            return f"{self.clusters:,} groups of {words}"
        return words


def smallest_difference(n_seeds: int, size: Size, seed_sd: float, family: int) -> float:
    """Return the true difference in accuracy that is found with probability `POWER` at level 5 % / family."""
    n = size.clusters
    degrees = question_degrees(n, size.problems)
    added = 2 / (n + 2) ** 2  # of the two questions that the test adds
    if n_seeds == 1:
        error = Error(0.0, DIFFER / n + added, degrees)
    else:
        noise = (DIFFER - FOR_EVERY_SEED) / n_seeds / n
        seeds = 2 * seed_sd**2 / n_seeds + noise
        error = Error(0.0, FOR_EVERY_SEED / n + added, degrees, seeds, n_seeds - 1, noise)
    return error.detectable(LEVEL / family)


UNKNOWN_SIZE = Size(500, 500)  # assumed: MATH-500's


class PowerRow(TypedDict):
    benchmark: str
    n_problems: int
    n_clusters: int
    family_size: int
    n_seeds: int
    this_grid: bool
    differences: dict[float, float]  # smallest difference by standard deviation over seeds


def planned_power(config: Config, sizes: Mapping[str, Size]) -> Iterator[PowerRow]:
    """Yield a row per benchmark and number of seeds, for the K of the first model against K=0; none without two K."""
    model = next(iter(config.models))
    family = len(planned_pairs(Grid(config), model))
    if family == 0:
        return
    for benchmark, size in sizes.items():
        for n_seeds in sorted({*SEEDS, len(config.seeds)}):
            yield {
                "benchmark": benchmark,
                "n_problems": size.problems,
                "n_clusters": size.clusters,
                "family_size": family,
                "n_seeds": n_seeds,
                "this_grid": n_seeds == len(config.seeds),
                "differences": {sd: smallest_difference(n_seeds, size, sd, family) for sd in SEED_SDS},
            }


def planned_words(config: Config, sizes: Mapping[str, Size | None]) -> list[str]:
    """Return paragraphs and Markdown tables on the differences that a grid could find; none without two K."""
    rows = list(planned_power(config, {name: size or UNKNOWN_SIZE for name, size in sizes.items()}))
    if not rows:
        return []
    words = [
        f"The smallest differences from K=0 that the tests find with {POWER:.0%} probability, in points of accuracy. "
        "Columns: the standard deviation of a policy's accuracy over seeds, without the noise of single answers (the "
        "`std_over_seeds` of a finished grid has both). With one seed, differences between these weights. Two policies "
        f"are assumed to differ in {DIFFER:.0%} of their answers; - is more than {100 * LARGEST:g} points."
    ]
    for benchmark, of_benchmark in groupby(rows, key=itemgetter("benchmark")):
        mine = list(of_benchmark)
        size = str(sizes[benchmark] or f"{UNKNOWN_SIZE} (a guess: not loaded yet)")
        family = mine[0]["family_size"]
        comparisons = f"{family} comparisons" if family > 1 else f"{family} comparison"
        words.append(f"{literal(benchmark)}, {size}, corrected for {comparisons}:")
        words.append(_table(mine))
    return words


def _table(rows: list[PowerRow]) -> str:
    heads = [f"sd {100 * sd:g}" for sd in SEED_SDS]
    lines = [f"| seeds | {' | '.join(heads)} |", f"|---:|{'---:|' * len(heads)}"]
    for row in rows:
        seeds = str(row["n_seeds"])
        if row["this_grid"]:
            seeds += " (this grid)"
        cells = [f"{100 * found:.1f}" if found <= LARGEST else "-" for found in row["differences"].values()]
        lines.append(f"| {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def benchmark_sizes(config: Config, results: str | Path = "results") -> dict[str, Size | None]:
    """Return the size of each tested benchmark, None if it is not loaded yet; ProblemError for a mistake in a local
    file."""
    sizes: dict[str, Size | None] = {}
    for name in config.tested_benchmarks:
        problems = _available(name, config.benchmarks[name], Path(results, f"problems/{name}.jsonl"))
        if problems is None:
            sizes[name] = None
        else:
            clusters = {problem.cluster for problem in problems}
            sizes[name] = Size(max(len(problems), 2), max(len(clusters), 2))
    return sizes


def _available(name: str, source: ProblemSource, loaded: Path) -> list[Problem] | None:
    if isinstance(source, SyntheticProblems):
        return load_problems(name, source)
    if loaded.is_file():
        return read_problems(loaded)
    if isinstance(source, HubProblems) or not Path(source.path).is_file():
        return None
    return load_problems(name, source)
