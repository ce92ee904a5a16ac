"""Errors of a full or read-only disk: one message that names file and reason, whichever library failed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile


class DiskError(OSError):
    """A file could not be written because of the disk; the message names file, reason and fix."""


@contextmanager
def names_the_disk(path: str | Path) -> Iterator[None]:
    """Raise `DiskError` for any error on a full or read-only disk: most libraries' do not name the file."""
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
    """What is wrong with the disk below a path, by the error or by writing a little; None if nothing is."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return os.strerror(error.errno)
    folder = next(parent for parent in (path, *path.absolute().parents) if parent.is_dir())
    try:
        with TemporaryFile(dir=folder) as probe:
            probe.write(bytes(2**20))
    except OSError as found:
        return found.strerror
    return None
