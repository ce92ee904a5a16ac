"""`g2d power`: the differences in accuracy that a design can find, or that published accuracies could have found.

g2d power --questions 500 --seeds 5 --policies 6 --sd 1.0
g2d power accuracies.csv --questions 500 --seeds 1

The file has a row per policy: `policy`, `accuracy` in percent, and optionally `benchmark`, `samples` (answers per
question), and `questions`, `seeds` and `sd`, which replace the options. All policies of a benchmark are compared with
the first one.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

from g2d.analysis.power import ASSUMED, Components, Design, smallest_difference
from g2d.forecast.power import ASSUMPTION, needed_words, seeds_table
from g2d.markdown import literal
from g2d.plain import say
from g2d.settings.arguments import at_least
from g2d.tables.power import design_power

NEEDED = ("questions", "seeds")
LIMITS = {"accuracy": (0, 100), "questions": (2, 1e9), "seeds": (1, 1e9), "samples": (1, 1e9), "sd": (0, 100)}


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser("power", help="differences that a design can find", description=__doc__)
    parser.add_argument("accuracies", type=Path, nargs="?", help="CSV of published accuracies")
    parser.add_argument("--questions", type=at_least(2, int), metavar="N", help="of the benchmark")
    parser.add_argument("--seeds", type=at_least(1, int), metavar="N", help="trainings per policy")
    parser.add_argument("--policies", type=at_least(2, int), metavar="N", help="compared (at least the rows of a file)")
    parser.add_argument(
        "--sd", type=at_least(0), default=1.0, metavar="POINTS", help="of an accuracy over seeds (default: 1)"
    )
    parser.add_argument(
        "--target",
        type=at_least(0, above=True),
        default=2.0,
        metavar="POINTS",
        help="a difference to find by a design (default: 2)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.accuracies:
        parts = _published(arguments.accuracies, arguments)
    else:
        missing = [name for name in (*NEEDED, "policies") if getattr(arguments, name) is None]
        if missing:
            raise ValueError(f"--{missing[0]} is missing: name it, or a file of accuracies")
        design = Design(arguments.seeds, arguments.questions, arguments.policies)
        parts = _designed(design_power(components(arguments.sd), design, arguments.target / 100), arguments.sd)
    say("\n\n".join(part if "\n" in part else textwrap.fill(part, 118) for part in parts))
    return 0


def components(sd: float, samples: int = 1) -> Components:
    return Components(ASSUMED.policy_question, (sd / 100) ** 2, ASSUMED.answer / samples)


def read_accuracies(
    file: Path, questions: int | None = None, seeds: int | None = None, sd: float = 1.0
) -> pd.DataFrame:
    """Read published accuracies; the arguments fill in missing columns.

    Returns:
        One row per policy and benchmark: benchmark, policy, accuracy (percent), questions, seeds, samples, sd (points).

    Raises:
        ValueError: the file is no CSV, a column is missing, or a value is out of range.
    """
    try:
        rows = pd.read_csv(file, comment="#", skipinitialspace=True)
    except ValueError as error:
        raise ValueError(
            f"{file}: not readable as CSV ({str(error).strip()}): write columns policy and accuracy"
        ) from None
    defaults = {"benchmark": "", "questions": questions, "seeds": seeds, "samples": 1, "sd": sd}
    for name, value in defaults.items():
        if name not in rows.columns:
            rows[name] = value
    for name in ("policy", "accuracy", *NEEDED):
        if name not in rows.columns or rows[name].isna().any():
            fix = f"add it, or give --{name}" if name in NEEDED else "add it"
            raise ValueError(f"{file}: column {name} is missing or has an empty cell: {fix}")
    for name, (low, high) in LIMITS.items():
        numbers = pd.to_numeric(rows[name], errors="coerce")
        if not numbers.between(low, high).all():
            raise ValueError(f"{file}: column {name}: not every cell is a number from {low:g} to {high:g}")
        rows[name] = numbers
    if rows["accuracy"].max() <= 1:
        raise ValueError(f"{file}: column accuracy is in percent, and no cell is above 1: multiply them by 100")
    if (sizes := rows.groupby("benchmark", sort=False).size()).min() < 2:
        raise ValueError(f"{file}: {sizes.idxmin() or 'it'} has one policy: nothing can be compared")
    return rows


def reach(rows: pd.DataFrame, n_policies: int | None = None) -> float:
    """Return the smallest difference from the first row that is found with 80 % probability, in points.

    Args:
        rows: rows of one benchmark. The smallest seeds, questions and samples count.
        n_policies: number of compared policies, if there are more than rows.
    """
    n = n_policies or len(rows)
    smallest, sd = rows[["questions", "seeds", "samples"]].min().astype(int), float((rows["sd"] ** 2).mean() ** 0.5)
    design = Design(smallest["seeds"], smallest["questions"], n, n - 1)
    return 100 * smallest_difference(components(sd, smallest["samples"]), design)


def _seeds(n: int) -> str:
    return f"{n} seeds" if n > 1 else "1 seed (differences are between these weights)"


def _comparisons(n: int) -> str:
    return f"{n} comparison{'s' * (n > 1)}"


def _designed(rows: pd.DataFrame, sd: float) -> list[str]:
    (row,) = rows[rows["this_grid"]].to_dict("records")
    return [
        f"{row['n_problems']:,} questions, {_seeds(row['n_seeds'])}, {row['family_size'] + 1} policies, and a standard "
        f"deviation of accuracies over seeds of {sd:g} points. With 80 % probability a difference of "
        f"{100 * row['difference']:.1f} points from one reference is found, corrected for "
        f"{_comparisons(row['family_size'])}, and if all are equally good, a margin of {100 * row['margin']:.1f} "
        f"points is shown. {ASSUMPTION}",
        "The same by the number of seeds and their standard deviation (difference / margin, in points):",
        seeds_table(rows.assign(this_grid=False)),
        needed_words(rows),
    ]


def _published(file: Path, arguments: argparse.Namespace) -> list[str]:
    accuracies = read_accuracies(file, arguments.questions, arguments.seeds, arguments.sd)
    parts = [ASSUMPTION]
    for benchmark, rows in accuracies.groupby("benchmark", sort=False):
        n = max(arguments.policies or 0, len(rows))
        first, smallest, seeds = rows.iloc[0], reach(rows, n), _seeds(int(rows["seeds"].min()))
        parts.append(
            f"{str(benchmark) or file.stem}, {rows['questions'].min():,} questions, {seeds}: "
            f"with 80 % probability this design finds a difference of {smallest:.1f} points from {first['policy']}, "
            f"corrected for {_comparisons(n - 1)}."
        )
        lines = ["| policy | accuracy | difference | within reach |", "|---|---:|---:|---|"]
        for row in rows.iloc[1:].to_dict("records"):
            difference = row["accuracy"] - first["accuracy"]
            verdict = "yes" if abs(difference) >= smallest else "no"
            lines.append(f"| {literal(str(row['policy']))} | {row['accuracy']:g} | {difference:+.1f} | {verdict} |")
        parts.append("\n".join(lines))
    return parts
