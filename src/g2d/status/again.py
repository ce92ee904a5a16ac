"""The Snakemake command of a results folder, for messages about making a file again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from g2d.checks.load import owner

CHECKOUT = Path(__file__).parents[3]


def command(results: Path, arguments: Iterable[str] = ()) -> str:
    """Return a command that works in the current folder, with the configuration that the results were made with.

    Args:
        arguments: targets or `-R FILE`, before options that take several values.
    """
    run_folder = results.parent
    words = ["snakemake", "--cores", "all", *arguments]
    if not any(Path(name).is_file() for name in ("Snakefile", "workflow/Snakefile")):
        words += ["--snakefile", str(CHECKOUT / "Snakefile")]
    if run_folder.resolve() != Path.cwd():
        words += ["--directory", str(run_folder)]
    made_with = owner(results / "config.yaml")
    files = [os.path.relpath(run_folder / file) for file in made_with.files] if made_with else []
    if files and [Path(file).resolve() for file in files] != [CHECKOUT / "config/config.yaml"]:
        words += ["--configfile", *files]
    return shlex.join(words)
