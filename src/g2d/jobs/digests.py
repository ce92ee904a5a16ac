"""SHA-256 digests of every job's outputs and external inputs.

Snakemake compares large files by time stamps, which a copy may change.
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
NO_OUTPUTS = {FOLDER, TRASH, "logs", "benchmarks", "attempts", "config.yaml", "plan.json", "jobs.json", "report.html"}


def digest_file(log: str | Path) -> Path:
    return Path(str(log).replace("logs/", f"{FOLDER}/", 1)).with_suffix(".sha256")


def write_digests(log: str | Path, paths: Iterable[str], read: Mapping[str, str] | None = None) -> None:
    """Write the digests of a job's outputs, and of external inputs before it started (`read`)."""
    digests = {**(read or {}), **{str(file): sha256(file) for path in paths for file in _files(Path(path))}}
    write_text(digest_file(log), "".join(f"{digest}  {file}\n" for file, digest in digests.items()))


def read_digests(results: Path) -> dict[Path, str]:
    """Return all digests; a ValueError names an unreadable list."""
    lists = sorted((results / FOLDER).rglob("*.sha256"))
    return {Path(file): digest for listed in lists for file, digest in _read_list(listed).items()}


def _read_list(listed: Path) -> dict[str, str]:
    try:
        lines = read_lines(listed)
    except ValueError as error:
        reason = str(error).partition(";")[0]  # without its advice, which would make the job run again
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


BASE_RECORD = "/base/policy.json"  # M0's record


def require_recorded(files: Iterable[str]) -> None:
    """Raise a ChangedError if a file does not have its recorded digest; print how many files have none.

    Weights are compared with all files that their job wrote to the same folder, M0's record with all that its job read
    or wrote.
    """
    lists = {str(listed): _read_list(listed) for listed in sorted((Path("results") / FOLDER).rglob("*.sha256"))}
    recorded: dict[str, dict[str, str]] = {}  # list by file and digest; several lists if a rule was renamed
    for listed, digests in lists.items():
        for file, digest in digests.items():
            recorded.setdefault(file, {}).setdefault(digest, listed)
    read = {str(file): path for path in files for file in _files(Path(path))}
    _compare(read, recorded)
    read_with: dict[str, str] = {}
    for file in read:
        is_record = file.endswith(BASE_RECORD)
        if is_record or file.endswith(".safetensors"):
            others = {other for listed in recorded.get(file, {}).values() for other in lists[listed]}
            siblings = (other for other in others if is_record or Path(other).parent == Path(file).parent)
            read_with |= {other: other if other.startswith("results/") else file for other in siblings}
        for other, digest in _base_files(file).items() if is_record else ():
            recorded.setdefault(other, {}).setdefault(digest, file)
            read_with.setdefault(other, file)
    _compare({file: read_with[file] for file in sorted(read_with.keys() - read.keys())}, recorded)
    if unknown := sum(file not in recorded for file in read):
        say(f"{unknown} of {len(read)} files that this job reads have no recorded digest: they were not compared")


def _base_files(record: str) -> dict[str, str]:
    values = read_json(record)
    return {str(Path(values["base"], name)): digest for name, digest in (values.get("base_files") or {}).items()}


def snapshots(outputs: Iterable[str]) -> list[str]:
    records = [read_json(file) for file in outputs if file.endswith(BASE_RECORD)]
    return [record["base"] for record in records if record.get("revision")]


def _compare(outputs: Mapping[str, str], recorded: Mapping[str, Mapping[str, str]]) -> None:
    """Raise a ChangedError for the first changed file; `outputs` has each file's argument of `snakemake -R`."""
    present = remembered_digests(file for file in outputs if file in recorded and Path(file).is_file())
    changed = [file for file, digest in present.items() if digest not in recorded[file]]
    if not changed:
        return
    file, more = changed[0], f" ({len(changed) - 1} more: g2d recover --times names all)" if len(changed) > 1 else ""
    before, source = list(recorded[file].items())[-1]
    job = source.removeprefix(f"results/{FOLDER}/").removesuffix(".sha256")
    digests = f"sha256 {present[file]}, recorded {before}"
    again = f"snakemake -R {outputs[file]}"
    if file.startswith("results/"):
        fix = f"put it back, or have it made again: {again}"
    elif snapshots([outputs[file]]):
        fix = f"delete {Path(file).resolve()} and have it fetched again: {again} -- {outputs[file]}"
    else:
        fix = f"put it back, or have all that depends on it made again: {again}"
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
    entries, digests, new = _memory(memory), {}, {}
    for path in paths:
        name, begun, before = str(Path(path).absolute()), time.time(), identity(path)
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
    return bool(files) and all(digests.get(file) == sha256(file) for file in files)


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
        for path in (file, *(mark for folder in file.parents if (mark := folder / MARK).exists())):
            os.utime(path, (now, now))
    outputs = {file for file in _files(results) if file.relative_to(results).parts[0] not in NO_OUTPUTS}
    same = sum(file.is_file() for file in digests) - len(changed)
    return Times(same, changed, unknown=len(outputs - digests.keys()))


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file() and file.name != MARK)
    elif path.is_file():
        yield path
