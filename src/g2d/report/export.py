"""`g2d export`: the finished evaluations of a results folder in the formats of other tools."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from g2d.plain import say
from g2d.report.inspect_logs import write_logs


def register(subparsers: Any) -> None:
    """Add `export` to the g2d command."""
    parser = subparsers.add_parser(
        "export",
        help="write finished evaluations for other tools",
        description="Write the finished evaluations of a results folder for other tools. inspect: a log for every "
        "policy, benchmark and seed, which `inspect view` opens (docs/standard.md).",
    )
    parser.add_argument("results", nargs="?", default="results", help="results folder (default: results)")
    parser.add_argument("--to", required=True, choices=["inspect"], help="the format")
    parser.add_argument("--out", default="logs", metavar="FOLDER", help="where to; files there are replaced")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Export; 0 if there was something to export.

    Raises:
        OSError, ValueError, RuntimeError: see `write_logs`.
    """
    written, evaluations = write_logs(arguments.results, Path(arguments.out))
    say(f"{written} of {evaluations} evaluations in {arguments.out}: inspect view --log-dir {arguments.out}")
    return 0
