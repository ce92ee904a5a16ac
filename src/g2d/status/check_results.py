"""`g2d check-results`: compare every result with the digest that its job recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from g2d.jobs.digests import output_of, outputs_in, read_digests
from g2d.jobs.files import sha256
from g2d.plain import say
from g2d.status.again import command

RESULTS = Path("results")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "check-results",
        help="compare every result with its recorded digest",
        description="Compare every result with the SHA-256 that its job recorded, and name those that differ or are "
        "missing. Changes nothing.",
    )
    parser.set_defaults(run=run)


def run(_arguments: argparse.Namespace) -> int:
    if not RESULTS.is_dir():
        raise RuntimeError(f"no results folder in {Path.cwd()}: run this where Snakemake runs")
    digests = read_digests(RESULTS)
    changed = 0
    missing = 0
    for file, digest in digests.items():
        if file.is_file():
            if sha256(file) != digest:
                changed += 1
                again = command(RESULTS, ["-R", str(output_of(file))])
                say(f"{file}: not what its job wrote: put it back, or have it made again: {again}")
        elif output_of(file) == file:  # a checkpoint is a folder, and may have been emptied
            missing += 1
            say(f"{file}: missing, to make it again: {command(RESULTS, [str(file)])}")
    same = len(digests) - changed - missing
    say(f"{same} files are as their jobs wrote them, {changed} differ, {missing} are missing")
    unknown = len(outputs_in(RESULTS) - digests.keys())
    if unknown:
        say(f"{unknown} files have no recorded digest")
    return 1 if changed or missing else 0
