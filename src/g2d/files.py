"""Files that are either complete or absent: everything a stage writes appears under its name in one rename."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A sibling to write to, a file or a folder; it takes the name `path` on success and vanishes on an exception.

    Raises:
        DiskError: the disk is full or may not be written; whatever had the name before is untouched.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with names_the_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield draft
            if path.is_dir():
                shutil.rmtree(path)
            draft.replace(path)
    finally:
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            with suppress(OSError):  # on a read-only disk not even the absence of a file can be had
                draft.unlink(missing_ok=True)


class DiskError(OSError):
    """Something could not be written, and the disk is the reason; the message names file, reason and fix."""


@contextmanager
def names_the_disk(path: str | Path) -> Iterator[None]:
    """Raise `DiskError` for whatever a library says when the disk is full or read-only: most leave out the file."""
    try:
        yield
    except DiskError:
        raise
    except Exception as error:
        if (reason := _disk_trouble(Path(path), error)) is None:
            raise
        raise DiskError(
            f"{path}: cannot be written ({reason}): make room or permit writing there, then run the same command again"
        ) from error


def _disk_trouble(path: Path, error: Exception) -> str | None:
    """What is wrong with the disk below a path, if anything: told by the error, or found by writing a little."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return os.strerror(error.errno)
    folder = next(parent for parent in (path, *path.absolute().parents) if parent.is_dir())
    try:
        with TemporaryFile(dir=folder) as probe:
            probe.write(bytes(2**20))
    except OSError as found:
        return found.strerror
    return None


def install(source: Path, path: Path) -> None:
    """Move a finished file or folder of the same disk to its name, in place of what had it."""
    with atomic(path) as draft:
        source.rename(draft)


def write_json(path: str | Path, value: Mapping[str, Any]) -> None:
    """Indented JSON, written atomically; NaN is refused because it is not JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """A text file, written atomically."""
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: the file is not a JSON object; the message names it.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON ({error}); delete it to have it made again") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object; delete it to have it made again")
    return value


def write_jsonl(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, written atomically."""
    with atomic(path) as draft, open(draft, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line of a file that ends with a line break, as all of ours do.

    Raises:
        ValueError: it is empty or cut short; the message names it. A cut exactly between two lines cannot be seen.
    """
    text = Path(path).read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise ValueError(f"{path}: {'cut short' if text else 'empty'}; delete it to have it made again")
    return enumerate(text[:-1].split("\n"), 1)


def sha256(path: str | Path) -> str:
    """Hex digest of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
