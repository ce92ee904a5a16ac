"""Statistical power of a grid in words, for `g2d plan` and the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.analysis.power import ASSUMED, MOST_QUESTIONS
from g2d.experiment.config import Config
from g2d.markdown import literal
from g2d.problems.settings import LocalProblems, SyntheticProblems
from g2d.tables.power import POINTS, planned_power

UNKNOWN_SIZE = 500  # assumed size of a benchmark: MATH-500's
ASSUMPTION = (
    f"Two policies are assumed to differ in {200 * (ASSUMED.policy_question + ASSUMED.answer):.0f} % of their answers; "
    "a finished grid says in how many."
)


def planned_words(config: Config, n_problems: Mapping[str, int | None]) -> list[str]:
    """Return paragraphs and Markdown tables on the power of a grid's tests; none without two K."""
    sizes = {name: n or UNKNOWN_SIZE for name, n in n_problems.items()}
    planned = planned_power(config, sizes)
    if planned.empty:
        return []
    words = [
        "Statistical power, in points of accuracy: the smallest difference that the tests find with 80 % probability, "
        "and after the slash, if all K are equally good, the smallest margin by which a K is shown to be at most worse "
        "than the best. Columns: the standard deviation of a policy's accuracy over seeds. With one seed, differences "
        f"between these weights. {ASSUMPTION}"
    ]
    for benchmark, rows in planned.groupby("benchmark", sort=False):
        words += _of_benchmark(str(benchmark), rows, n_problems[str(benchmark)] is None)
    return words


def _of_benchmark(benchmark: str, rows: pd.DataFrame, guessed: bool) -> list[str]:
    family = rows[rows["against"] == rows["against"].iloc[0]]
    first = family.iloc[0]
    head = (
        f"{literal(benchmark)}, {first['n_problems']:,} problems{' (a guess: not loaded yet)' if guessed else ''}, K "
        f"against {first['against']}, corrected for "
        f"{first['family_size']} comparison{'s' if first['family_size'] > 1 else ''}:"
    )
    return [head, seeds_table(family), needed_words(family)]


def seeds_table(rows: pd.DataFrame) -> str:
    lines = [
        f"| seeds | {' | '.join(f'sd {points}' for points in POINTS.values())} |",
        f"|---:|{'---:|' * len(POINTS)}",
    ]
    for row in rows.to_dict("records"):
        cells = [
            f"{100 * row[f'difference_sd_{points}']:.1f} / {100 * row[f'margin_sd_{points}']:.1f}"
            for points in POINTS.values()
        ]
        lines.append(f"| {row['n_seeds']}{' (this grid)' if row['this_grid'] else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


def needed_words(rows: pd.DataFrame) -> str:
    points = f"{100 * rows['target'].iloc[0]:g} points"
    several = rows[(rows["n_seeds"] > 1) & rows["problems_needed"].notna()]
    if several.empty:
        return f"To find {points}, {rows['n_seeds'].max()} seeds with {MOST_QUESTIONS:,} problems are too few."
    ways = [f"{row['n_seeds']} seeds and {row['problems_needed']:,} problems" for row in several.to_dict("records")[:3]]
    seed_sd = rows["seed_sd"].iloc[0]
    sd = 1.0 if pd.isna(seed_sd) else 100 * seed_sd
    return f"To find {points} where seeds differ by {sd:.1f} points: {', or '.join(ways)}."


def benchmark_sizes(config: Config, results: str | Path = "results") -> dict[str, int | None]:
    """Return the number of problems of every benchmark, None if not loaded yet."""
    return {name: _size(source, Path(results, f"problems/{name}.jsonl")) for name, source in config.benchmarks.items()}


def _size(source: Any, loaded: Path) -> int | None:
    if isinstance(source, SyntheticProblems):
        return source.n
    for file in (loaded, *([Path(source.path)] if isinstance(source, LocalProblems) else [])):
        if file.is_file():
            with file.open("rb") as lines:
                return max(sum(1 for line in lines if line.strip()), 2)
    return None
