"""What every job left, by content: a list of SHA-256 digests beside its log, in the format of `sha256sum`.

Snakemake judges a large file by its time stamp alone. A folder that was copied without them (`cp -r`, a download, an
object store) then looks as if everything in it had to be made again. `g2d recover --times` compares every file with the
digest that its job left, and sets the time stamps so that exactly the files that differ are newer than what was made
from them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from g2d.jobs.files import read_lines, sha256, write_text

FOLDER = "digests"
UNKNOWN = "delete it, and its files count as unknown"
MARK = ".snakemake_timestamp"  # in a folder that is an output: its age is that of the folder
NO_OUTPUTS = {FOLDER, "logs", "benchmarks", "attempts", "config.yaml", "report.html"}  # in results, but of no job


def digest_file(log: str | Path) -> Path:
    """Where the digests of a job are, from the name of its log."""
    return Path(str(log).replace("logs/", f"{FOLDER}/", 1)).with_suffix(".sha256")


def write_digests(log: str | Path, paths: Iterable[str]) -> None:
    """List the digests of files, and of those in folders, for the job with this log."""
    files = (file for path in paths for file in _files(Path(path)))
    write_text(digest_file(log), "".join(f"{sha256(file)}  {file}\n" for file in files))


def read_digests(results: Path) -> dict[Path, str]:
    """The digest of every file that a job left in a results folder or read from elsewhere.

    Raises:
        ValueError: a list cannot be read; the message names it.
    """
    found = {}
    for listed in sorted((results / FOLDER).rglob("*.sha256")):
        try:
            lines = read_lines(listed)
        except ValueError as error:  # which says that it would be made again
            reason = str(error).partition(";")[0]
            raise ValueError(f"{reason}; {UNKNOWN}") from None
        for number, line in lines:
            digest, two_spaces, file = line.partition("  ")
            if not two_spaces:
                raise ValueError(f"{listed}, line {number}: no digest and file; {UNKNOWN}")
            found[Path(file)] = digest
    return found


@dataclass(frozen=True, slots=True)
class Times:
    """What `set_times` found."""

    same: int  # files with the content that their job left
    changed: list[Path]  # with another content
    unknown: int  # files of results that no list has, such as those of 0.1.0


def set_times(results: Path) -> Times:
    """Give everything in a results folder one time stamp, and what differs from its digest a later one.

    Files that are equally old are up to date for Snakemake, whatever was made from what.

    Raises:
        ValueError: a list of digests cannot be read.
        OSError: a time stamp cannot be set.
    """
    digests = read_digests(results)
    changed = sorted(file for file, digest in digests.items() if file.is_file() and sha256(file) != digest)
    now = time.time()
    entries = [results, *results.rglob("*")]
    for entry in entries:
        os.utime(entry, (now - 1, now - 1), follow_symlinks=False)
    for file in changed:
        for path in (file, *(mark for folder in file.parents if (mark := folder / MARK).exists())):
            os.utime(path, (now, now))
    outputs = {file for file in _files(results) if file.relative_to(results).parts[0] not in NO_OUTPUTS}
    same = sum(file.is_file() for file in digests) - len(changed)
    return Times(same, changed, unknown=len(outputs - digests.keys()))


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or every file in a folder but Snakemake's mark in it."""
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file() and file.name != MARK)
    elif path.is_file():
        yield path
