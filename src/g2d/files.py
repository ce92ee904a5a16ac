"""Files that are either complete or absent: everything a stage writes appears under its name in one rename."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A sibling to write to, a file or a folder; it takes the name `path` on success and vanishes on an exception."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield draft
        if path.is_dir():
            shutil.rmtree(path)
        draft.replace(path)
    finally:
        if draft.is_dir():
            shutil.rmtree(draft)
        else:
            draft.unlink(missing_ok=True)


def write_json(path: str | Path, value: Mapping[str, Any]) -> None:
    """Indented JSON, written atomically; NaN is refused because it is not JSON."""
    with atomic(path) as draft:
        draft.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


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


def sha256(path: str | Path) -> str:
    """Hex digest of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
