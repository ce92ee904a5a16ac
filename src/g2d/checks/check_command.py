"""`g2d config check FILE ...`: validate a configuration, with files that are merged over it."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from g2d.checks.load import read
from g2d.checks.requirements import require_files, require_installed
from g2d.plain import say
from g2d.settings import ConfigError, together


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("config", help="check a configuration")
    actions = parser.add_subparsers(dest="action", required=True)
    check = actions.add_parser("check", help="validate a configuration")
    check.add_argument("files", nargs="+", metavar="file", help="the configuration, then files to merge over it")
    check.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    files = ", ".join(arguments.files)
    try:
        config = read(*arguments.files)
        from g2d.checks.contents import require_contents  # takes seconds to import

        together(partial(require_files, config), partial(require_contents, config))
    except ConfigError as error:
        for mistake in str(error).splitlines():
            is_named = mistake.startswith(tuple(arguments.files))
            say(mistake if is_named else f"{files}: {mistake}", file=sys.stderr)
        return 1
    say(f"{files}: valid")
    try:
        require_installed(config)  # the run may be elsewhere
    except ConfigError as error:
        say(f"On this machine it would stop: {error}")
    return 0
