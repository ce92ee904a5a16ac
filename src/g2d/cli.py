"""The `g2d` command. Each subcommand is a module with `register(subparsers)` in its package.

It sets `run`, a function of the parsed arguments that returns the exit code: 0, 1 if some of the input was bad, 2 if
nothing could be done.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

from g2d import __version__
from g2d.plain import say

COMMANDS = {
    "config": "g2d.checks.check_command",
    "try": "g2d.checks.try_command",
    "plan": "g2d.forecast.plan",
    "verify": "g2d.verifier.verify_command",
    "recover": "g2d.jobs.recover",
    "check-results": "g2d.status.check_results",
    "status": "g2d.status.command",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="g2d", description="Tools of the G2D experiment.")
    parser.add_argument("--version", action="version", version=f"g2d {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    given = list(sys.argv[1:] if argv is None else argv)
    modules = [COMMANDS[given[0]]] if given and given[0] in COMMANDS else list(COMMANDS.values())
    for module in modules:  # importing the others takes long
        import_module(module).register(subparsers)
    arguments = parser.parse_args(given)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            reason = f"{error.filename}: {error.strerror}: correct the path"
        say(f"g2d {arguments.command}: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
