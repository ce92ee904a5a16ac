"""Make the tables of docs/simulations.md again: run each command of the page and put its output below it.

python benchmarks/simulations.py [WORD ...]     # only commands that contain one of the words
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/simulations.md"
# A fenced command and the tables below it.
BLOCK = re.compile(r"(?P<fence>```\npython (?P<command>[^\n]+)\n```\n)(?P<tables>(?:\n(?:\|[^\n]*\n)+)+)")


def run(command: str) -> str:
    """Return the tables that a Python script of the repository prints."""
    done = subprocess.run([sys.executable, *shlex.split(command)], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    return "\n".join(line for line in done.stdout.decode().splitlines() if not line or line.startswith("|"))


def regenerate(page: str, words: Sequence[str] = (), run: Callable[[str], str] = run) -> str:
    """Return the page with new tables for the commands that contain one of the words (without words: for all)."""

    def block(match: re.Match[str]) -> str:
        if words and not any(word in match["command"] for word in words):
            return match[0]
        return f"{match['fence']}\n{run(match['command']).strip()}\n"

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    PAGE.write_text(regenerate(PAGE.read_text(encoding="utf-8"), parser.parse_args().words), encoding="utf-8")
