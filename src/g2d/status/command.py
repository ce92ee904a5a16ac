"""`g2d status`: jobs, costs, and the hours that are left."""

from __future__ import annotations

import argparse
import gc
import shutil
import sys
import time
from pathlib import Path

from g2d.plain import say
from g2d.settings.arguments import at_least
from g2d.status.screen import screen
from g2d.status.snapshot import Folder, Snapshot

CLEAR = "\033[H\033[2J"
UNCUT = 1_000_000  # if the output is no terminal


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "status",
        help="what has finished, runs, failed and is to come",
        description="What has finished, what runs and at which step, what failed and its last line, and the hours that "
        "are left. Only reads files, so it also works on a login node while jobs run elsewhere.",
    )
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="the folder (default: results)")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=at_least(0, above=True),
        const=5.0,
        metavar="SECONDS",
        help="print again every so many seconds (5) until all jobs have finished or Ctrl-C",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    results = arguments.results
    if not results.is_dir():
        raise FileNotFoundError(f"no results folder at {results}: run this where Snakemake runs, or name the folder")
    if not (results / "config.yaml").is_file():
        raise FileNotFoundError(f"{results}/config.yaml is not there: no run has begun in this folder")
    gc.set_threshold(1_000_000)  # collecting takes as long as reading ten thousand records
    folder = Folder(results)
    try:
        while True:
            snapshot = folder.look()
            _print(snapshot, again=arguments.watch is not None)
            if arguments.watch is None or snapshot.counts["finished"] == len(snapshot.states):
                return 0
            time.sleep(arguments.watch)
    except KeyboardInterrupt:
        if arguments.watch is None:
            raise
        return 0  # Ctrl-C ends a watch


def _print(snapshot: Snapshot, *, again: bool) -> None:
    if not sys.stdout.isatty():
        say(screen(snapshot, UNCUT, UNCUT))
        return
    width, height = shutil.get_terminal_size()
    if again:
        sys.stdout.write(CLEAR)
    say(screen(snapshot, width, height - 1))
