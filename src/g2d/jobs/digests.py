"""SHA-256 digests of every job's outputs and external inputs.

Snakemake compares large files by time stamps, but a copy may change these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from g2d.jobs.files import TRASH, disk_errors, read_json, read_lines, sha256, write_json, write_text
from g2d.plain import say

FOLDER = "digests"
UNKNOWN = "delete it, and its files count as unknown"
MARK = ".snakemake_timestamp"  # the age of a folder that is an output
ANSWERS = "answers"  # finished answers, which `stages/evaluate_policy.py` seals by digest
NO_OUTPUTS = {FOLDER, TRASH, ANSWERS, "logs", "benchmarks", "attempts"}
NO_OUTPUTS |= {"config.yaml", "plan.json", "jobs.json", "report.html"}


def digest_file(log: str | Path) -> Path:
    return Path(str(log).replace("logs/", f"{FOLDER}/", 1)).with_suffix(".sha256")


def write_digests(log: str | Path, paths: Iterable[str], read: Mapping[str, str] | None = None) -> None:
    """Write the digests of a job's outputs, and of external inputs before it started (`read`)."""
    files = [str(file) for path in paths for file in _files(Path(path))]
    digests = dict(read or {}) | remembered_digests(files)
    write_text(digest_file(log), "".join(f"{digest}  {file}\n" for file, digest in digests.items()))


def read_digests(results: Path) -> dict[Path, str]:
    """Return all digests; a ValueError names an unreadable list."""
    digests = {}
    for entries in _read_lists(results).values():
        for file, digest in entries.items():
            digests[Path(file)] = digest
    return digests


def _read_lists(results: Path) -> dict[str, dict[str, str]]:
    """Return the digests of every list, by the list's path."""
    lists = sorted((results / FOLDER).rglob("*.sha256"))
    return {str(listed): _read_list(listed) for listed in lists}


def _read_list(listed: Path) -> dict[str, str]:
    try:
        lines = read_lines(listed)
    except ValueError as error:
        reason = str(error).partition(";")[0]  # without the advice, for that would make the job run again
        raise ValueError(f"{reason}; {UNKNOWN}") from None
    digests = {}
    for number, line in lines:
        digest, two_spaces, file = line.partition("  ")
        if not two_spaces:
            raise ValueError(f"{listed}, line {number}: no digest and file; {UNKNOWN}")
        digests[file] = digest
    return digests


class ChangedError(ValueError):
    """A file's content is not the recorded one."""


def require_recorded(files: Iterable[str]) -> None:
    """Raise a ChangedError if a file does not have its recorded digest; print how many files have none."""
    recorded: dict[str, dict[str, str]] = {}  # list by file and digest; several lists if a rule was renamed
    for listed, digests in _read_lists(Path("results")).items():
        for file, digest in digests.items():
            recorded.setdefault(file, {}).setdefault(digest, listed)
    read: dict[str, str] = {}  # values: what `snakemake -R` makes again
    for argument in files:
        for path in _files(Path(argument)):
            read[str(path)] = argument
    _compare(read, recorded)
    unknown = sum(name not in recorded for name in read)
    if unknown:
        say(f"{unknown} of {len(read)} files that this job reads have no recorded digest: they were not compared")


def _compare(outputs: Mapping[str, str], recorded: Mapping[str, Mapping[str, str]]) -> None:
    """Raise a ChangedError for the first changed file; `outputs` has each file's argument of `snakemake -R`."""
    present = remembered_digests(file for file in outputs if file in recorded and Path(file).is_file())
    changed = [file for file, digest in present.items() if digest not in recorded[file]]
    if not changed:
        return
    file = changed[0]
    more = ""
    if len(changed) > 1:
        more = f" ({len(changed) - 1} more: g2d recover --times names all)"
    before, source = list(recorded[file].items())[-1]
    job = source.removeprefix(f"results/{FOLDER}/").removesuffix(".sha256")
    digests = f"sha256 {present[file]}, recorded {before}"
    again = f"the same snakemake command with -R {outputs[file]}"
    fix = f"put it back, or have it made again: {again}"
    if Path(file).is_symlink():  # weights of M0
        fix = f"put {Path(file).resolve()} back (delete it if it is in the Hub's cache), then {again}"
    raise ChangedError(f"{file}: not the file that {job} recorded: {digests}{more}; {fix}")


def recorded_files(log: str | Path, files: Collection[str]) -> dict[str, str]:
    listed = digest_file(log)
    if not files or not listed.exists():
        return {}
    digests = _read_list(listed)
    return {file: digests[file] for file in files if file in digests}


def changed_inputs(log: str | Path, files: Collection[str]) -> list[str]:
    return [file for file, digest in recorded_files(log, files).items() if remembered_digest(file) != digest]


MEMORY = Path(".snakemake/g2d_digests.json")
REMEMBERED_FROM = 2**24  # bytes; smaller files are read in some 10 ms
SETTLED_S = 2.0  # a file may change again within this time and keep its time stamps


def remembered_digest(path: str | Path) -> str:
    return remembered_digests([str(path)])[str(path)]


def remembered_digests(paths: Iterable[str]) -> dict[str, str]:
    """Return the digest of each file; a large file is read again only if its `identity` changed."""
    memory = Path.cwd() / MEMORY
    entries = _memory(memory)
    digests = {}
    new = {}
    for path in paths:
        name = os.path.realpath(path)  # links share it
        begun = time.time()
        before = identity(path)
        entry = entries.get(name)
        if isinstance(entry, list) and entry[:-1] == before:
            digests[path] = str(entry[-1])
            continue
        digests[path] = sha256(path)
        settled = begun - max(before[2:]) / 1e9 > SETTLED_S and identity(path) == before
        if before[1] >= REMEMBERED_FROM and settled:
            new[name] = [*before, digests[path]]
    if new and memory.parent.is_dir():
        entries.update(new)
        with suppress(OSError):
            write_json(memory, {**_read_memory(memory), **new})  # other jobs may have added theirs
    return digests


def identity(path: str | Path) -> list[int]:
    """Return inode, size, mtime and ctime (nanoseconds); no program can set ctime.

    The file is opened because only then NFS fetches present values.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _read_memory(file: Path) -> dict[str, object]:
    try:
        return read_json(file)
    except (OSError, ValueError):
        return {}


_memory = cache(_read_memory)


def as_recorded(output: Path, digests: Mapping[Path, str]) -> bool:
    files = list(_files(output))
    if not files:
        return False
    return all(digests.get(file) == sha256(file) for file in files)


@dataclass(frozen=True, slots=True)
class Times:
    same: int
    changed: list[Path]
    unknown: int  # without a digest


def set_times(results: Path) -> Times:
    """Give all files one time stamp, and a later one to files that differ from their digest."""
    digests = read_digests(results)
    changed = sorted(file for file, digest in digests.items() if file.is_file() and sha256(file) != digest)
    now = time.time()
    entries = [results, *results.rglob("*")]
    for entry in entries:
        with disk_errors(entry):
            os.utime(entry, (now - 1, now - 1), follow_symlinks=False)
    for file in changed:
        with suppress(PermissionError):  # of somebody else, from outside of the results: plans compare its digest
            os.utime(file, (now, now))
        for folder in file.parents:
            mark = folder / MARK
            if mark.exists():
                os.utime(mark, (now, now))
    outputs = {file for file in _files(results) if file.relative_to(results).parts[0] not in NO_OUTPUTS}
    same = sum(file.is_file() for file in digests) - len(changed)
    return Times(same, changed, unknown=len(outputs - digests.keys()))


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file() and file.name != MARK)
    elif path.is_file():
        yield path
