"""SHA-256 digests of every job's inputs and outputs.

Snakemake compares large files by time stamps, but a copy may change these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from g2d.jobs.files import TRASH, read_json, read_lines, sha256, write_json, write_text
from g2d.plain import say

FOLDER = "digests"
UNKNOWN = "delete it, and its files count as unknown"
MARK = ".snakemake_timestamp"  # in a folder that is an output; its mtime counts as the folder's
ANSWERS = "answers"  # finished answers, which `stages/evaluate_policy.py` seals by digest
NO_OUTPUTS = {FOLDER, TRASH, ANSWERS, "logs", "benchmarks", "attempts"}
NO_OUTPUTS |= {"config.yaml", "plan.json", "jobs.json", "report.html"}


def digest_file(log: str | Path) -> Path:
    """List of the outputs of the job with this log."""
    return Path(str(log).replace("logs/", f"{FOLDER}/", 1)).with_suffix(".sha256")


def inputs_file(log: str | Path) -> Path:
    """List of the files that the job with this log read."""
    return digest_file(log).with_suffix(".inputs")


def write_digests(log: str | Path, paths: Iterable[str], read: Mapping[str, str]) -> None:
    """Write the digests of a job's outputs, and of its inputs before it started (`read`)."""
    files = [str(file) for path in paths for file in _files(Path(path))]
    _write_list(inputs_file(log), read)
    _write_list(digest_file(log), remembered_digests(files))


def _write_list(listed: Path, digests: Mapping[str, str]) -> None:
    if digests:
        write_text(listed, "".join(f"{digest}  {file}\n" for file, digest in digests.items()))
    else:
        listed.unlink(missing_ok=True)


def read_digests(results: Path) -> dict[Path, str]:
    """Return the digests of all outputs; a ValueError names an unreadable list."""
    digests = {}
    for entries in _read_lists(results).values():
        for file, digest in entries.items():
            digests[Path(file)] = digest
    return digests


def _read_lists(results: Path) -> dict[str, dict[str, str]]:
    """Return the digests of every list of outputs, by the list's path."""
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


def require_recorded(files: Iterable[str]) -> dict[str, str]:
    """Return the digests of files and of those in folders; a ChangedError if one is not as its job recorded it.

    Print how many have no recorded digest.
    """
    recorded: dict[str, dict[str, str]] = {}  # list by file and digest; several lists if a rule was renamed
    for listed, digests in _read_lists(Path("results")).items():
        for file, digest in digests.items():
            recorded.setdefault(file, {}).setdefault(digest, listed)
    read: dict[str, str] = {}  # values: what `snakemake -R` makes again
    for argument in files:
        for path in _files(Path(argument)):
            read[str(path)] = argument
    present = remembered_digests(read)
    _compare(present, read, recorded)
    unknown = sum(name not in recorded for name in read)
    if unknown:
        say(f"{unknown} of {len(read)} files that this job reads have no recorded digest: they were not compared")
    return present


def _compare(present: Mapping[str, str], outputs: Mapping[str, str], recorded: Mapping[str, Mapping[str, str]]) -> None:
    """Raise a ChangedError for the first changed file; `outputs` has each file's argument of `snakemake -R`."""
    changed = [file for file, digest in present.items() if digest not in recorded.get(file, [digest])]
    if not changed:
        return
    file = changed[0]
    more = ""
    if len(changed) > 1:
        more = f" ({len(changed) - 1} more: g2d check-results names all)"
    before, source = list(recorded[file].items())[-1]
    job = source.removeprefix(f"results/{FOLDER}/").removesuffix(".sha256")
    digests = f"sha256 {present[file]}, recorded {before}"
    again = f"the same snakemake command with -R {outputs[file]}"
    fix = f"put it back, or have it made again: {again}"
    if Path(file).is_symlink():  # weights of M0
        fix = f"put {Path(file).resolve()} back (delete it if it is in the Hub's cache), then {again}"
    raise ChangedError(f"{file}: not the file that {job} recorded: {digests}{more}; {fix}")


def recorded_files(log: str | Path, files: Collection[str]) -> dict[str, str]:
    """Return the digests that the job with this log recorded of its inputs, if among these files."""
    listed = inputs_file(log)
    if not files or not listed.exists():
        return {}
    digests = _read_list(listed)
    return {file: digests[file] for file in files if file in digests}


def changed_inputs(log: str | Path, files: Iterable[str]) -> list[str]:
    """Return the changed files of a job that reads nothing else; none if its list is missing.

    Files are compared by digest, so they may have moved.
    """
    listed = inputs_file(log)
    if not listed.exists():
        return []
    before = _read_list(listed)
    now = remembered_digests(files)
    if sorted(before.values()) == sorted(now.values()):
        return []
    new = [file for file, digest in now.items() if digest not in before.values()]
    return new or sorted(before.keys() ^ now.keys())


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


def keep_if_same(log: str, inputs: Iterable[str], outputs: Iterable[str]) -> bool:
    """Make outputs as new as the newest input if they look older than inputs that are as the job read them.

    Return whether they looked older. A time stamp in the future becomes the present.
    """
    files = [Path(output) for output in outputs]
    now = time.time_ns()
    for file in files:
        if _age(file) > now:
            _set_age(file, now)
    oldest = min(map(_age, files))
    newer = [file for file in inputs if Path(file).exists() and _age(Path(file)) > oldest]
    if not newer or not all(is_as_read(log, file) for file in newer):
        return False
    newest = max(_age(Path(file)) for file in newer)
    for file in files:
        if _age(file) < newest:
            _set_age(file, newest)
    return True


def outputs_in(results: Path) -> set[Path]:
    """Return all files that jobs left."""
    return {file for file in _files(results) if file.relative_to(results).parts[0] not in NO_OUTPUTS}


def output_of(file: Path) -> Path:
    """Return the output that a file belongs to: itself, or a folder."""
    return next((folder for folder in file.parents if (folder / MARK).exists()), file)


def is_as_read(log: str, path: str) -> bool:
    """Return whether a job read these bytes; files that are gone from a folder do not count (emptied checkpoints)."""
    files = [str(file) for file in _files(Path(path))]
    recorded = recorded_files(log, files)
    return bool(files) and remembered_digests(files) == recorded


def _age(path: Path) -> int:
    """Return the time stamp that Snakemake compares, in nanoseconds."""
    mark = path / MARK
    return (mark if mark.exists() else path).stat().st_mtime_ns


def _set_age(path: Path, mtime: int) -> None:
    mark = path / MARK
    os.utime(mark if mark.exists() else path, ns=(mtime, mtime))


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file() and file.name != MARK)
    elif path.is_file():
        yield path
