"""`g2d compare RUN RUN ...`: several results folders side by side. `--files` compares two file by file
(`g2d.report.replication`)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pandas as pd

from g2d.jobs.files import require_replaceable, write_text
from g2d.plain import plain, say
from g2d.report.phrases import signed, signed_interval
from g2d.report.replication import print_differences
from g2d.report.runs import about, differing_in, sentences
from g2d.report.styles import names
from g2d.tables.results import Results
from g2d.tables.runs import runs_table

MISSING = "-"
MAX_VALUE = 60  # characters of a setting on the screen


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser("compare", help="several runs side by side, and whether they differ")
    parser.add_argument("results", nargs="+", type=Path, help="results folders; the others are compared with the first")
    parser.add_argument("--benchmark", action="append", default=[], help="show this one (may be repeated)")
    parser.add_argument("--page", metavar="FILE", help="write a page with the answers beside each other (HTML)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "--files", action="store_true", help="two folders file by file (weights, rollouts, answers): is one a rebuild?"
    )
    parser.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    _require_several(arguments.results)
    if arguments.files:
        if len(arguments.results) > 2 or arguments.benchmark or arguments.page:
            raise ValueError("--files: compares all of two folders: leave out --benchmark, --page and further folders")
        first, second = arguments.results
        return print_differences(first, second, arguments.json)
    if arguments.page:
        require_replaceable(arguments.page)
    runs = opened(arguments.results, arguments.benchmark)
    table = runs_table(runs, arguments.benchmark)
    if arguments.json:
        policies = json.loads(table.to_json(orient="records"))
        say(json.dumps({"runs": about(runs), **differing_in(runs), "policies": policies}, indent=2))
    else:
        for line in _lines(runs, table):
            say(line)
    if arguments.page:
        from g2d.report.runs_page import runs_page  # the figures' packages come with it

        write_text(arguments.page, runs_page(runs, table, arguments.benchmark))
    return 0


def _require_several(folders: Sequence[Path]) -> None:
    if len(folders) < 2:
        raise ValueError(f"{folders[0]}: one run alone: name the results folder of another one beside it")
    if len(folders) > len(ascii_uppercase):
        raise ValueError(f"{len(folders)} runs: at most {len(ascii_uppercase)} at once")
    seen: dict[Path, Path] = {}
    for folder in folders:
        if (place := folder.resolve()) in seen:
            raise ValueError(f"{folder}: the same folder as {seen[place]}: name each run once")
        seen[place] = folder


def opened(folders: Sequence[Path], benchmarks: Sequence[str] = ()) -> dict[str, Results]:
    """Return runs by letter.

    Raises:
        FileNotFoundError: a folder has no results.
        ValueError: a run has no evaluation of these benchmarks.
    """
    runs = {letter: Results(folder) for letter, folder in zip(ascii_uppercase, folders, strict=False)}
    benchmarks_of_runs = list(dict.fromkeys(name for run in runs.values() for name in run.config.benchmarks))
    if unknown := [name for name in benchmarks if name not in benchmarks_of_runs]:
        raise ValueError(f"--benchmark {unknown[0]}: no run has it; there are {', '.join(benchmarks_of_runs)}")
    for run in runs.values():
        if not any(not benchmarks or benchmark in benchmarks for _, benchmark in run.answers):
            on = f" on {' or '.join(benchmarks)}" if benchmarks else ""
            raise ValueError(f"{run.folder}: no policy has been evaluated{on} yet: nothing to compare")
    return runs


# ---------------------------------------------------------------------------------------------------------- as text


def _lines(runs: Mapping[str, Results], table: pd.DataFrame) -> Iterator[str]:
    for name, facts in about(runs).items():
        done = f"{facts['evaluated']} of {facts['policies']} policies evaluated"
        version = f"g2d {facts['g2d']}" if facts["g2d"] else "no provenance.json, so what judged its answers is unknown"
        yield f"{name}  {facts['folder']}: {facts['title']} ({done}; {version})"
    for kind, values in differing_in(runs).items():
        yield ""
        cells = [[key, *map(_short, by_run.values())] for key, by_run in values.items()]
        yield from _aligned([[kind.capitalize(), *runs], *cells]) if cells else [f"{kind.capitalize()}: the same"]
    for (model, benchmark), rows in table.groupby(["model", "benchmark"], sort=False):
        yield ""
        yield from _of_benchmark(f"{model}, {benchmark}", rows, next(iter(runs)))


def _of_benchmark(title: str, rows: pd.DataFrame, first: str) -> Iterator[str]:
    cells = [[title, "run", "accuracy, %", "seeds", "hours", "tokens", f"minus {first}, points", "p (Holm)"]]
    last = None
    for name, (_, row) in zip(names(rows), rows.iterrows(), strict=True):
        compared = pd.notna(row["difference"])
        difference = f"{signed(row['difference'])} {signed_interval(row['difference_low'], row['difference_high'])}"
        reason = "" if pd.isna(row["not_compared"]) else row["not_compared"]
        why_none = reason if not reason or reason.startswith("only in ") else "not comparable"
        cells.append(
            [
                "" if name == last else name,
                row["run"],
                f"{100 * row['accuracy']:.1f} [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]",
                row["seeds"] or MISSING,
                MISSING if pd.isna(row["device_hours"]) else f"{row['device_hours']:.3g}",
                MISSING if pd.isna(row["tokens_generated"]) else f"{row['tokens_generated']:,.0f}",
                difference if compared else why_none,
                f"{row['p_holm']:.2g}" if compared else "",
            ]
        )
        last = name
    yield from _aligned(cells)
    yield from sentences(rows, first)


def _short(value: Any) -> str:
    text = plain(str(value))
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
