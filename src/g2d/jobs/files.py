"""Files that are complete or absent: they are written under another name and renamed."""

from __future__ import annotations

import codecs
import errno
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Record = TypeVar("Record")
NO_ROWS = "\n"  # content of a JSONL file without rows; a truncated file is empty
TRASH = ".trash"  # folder in a results folder; g2d never empties it


class DiskError(OSError):
    """A file could not be written because of the disk."""


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Raise `DiskError` for any error on a full or read-only disk; most libraries do not name the file."""
    try:
        yield
    except DiskError:
        raise
    except Exception as error:
        reason = _disk_trouble(Path(path), error)
        if reason is None:
            raise
        raise DiskError(
            f"{path}: cannot be written ({reason}): make room or permit writing there, then run the same command again"
        ) from error


def copy_folder(source: str | Path, to: str | Path, *left_out: str) -> None:
    with disk_errors(to):
        shutil.copytree(source, to, ignore=shutil.ignore_patterns(*left_out))


def _disk_trouble(path: Path, error: Exception) -> str | None:
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if isinstance(error, OSError) and error.errno in full:
        return os.strerror(error.errno)
    if isinstance(error, shutil.Error):
        for number in full:
            reason = os.strerror(number)
            if reason in str(error):
                return reason
    folder = path.absolute()
    while not folder.is_dir():
        folder = folder.parent
    try:
        with TemporaryFile(dir=folder) as probe:
            probe.write(bytes(2**20))
    except OSError as refusal:
        return refusal.strerror
    return None


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a draft that replaces `path` on success and is removed on an exception.

    A link's target is replaced, and a replaced file keeps its mode. Raises `DiskError`, or as `require_replaceable`.
    """
    with disk_errors(path):
        target = require_replaceable(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = _draft(target)
        draft.unlink(missing_ok=True)
        # A private file is private from its first byte.
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL, 0o666))
        try:
            if target.exists():
                draft.chmod(target.stat().st_mode & 0o777)
            yield draft
            draft.replace(target)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a draft that replaces the folder `path`. The old folder is deleted: never use it for a user's folder."""
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not target.is_dir():
        raise NotADirectoryError(f"{path}: a file has the name of a folder that is to be made: move it away")
    draft = _draft(target)
    try:
        with disk_errors(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            yield draft
            if not draft.is_dir():
                raise NotADirectoryError(f"{path}: no folder was made")
            if target.is_dir():
                shutil.rmtree(target)
            draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def require_replaceable(path: str | Path) -> Path:
    """Return the file that writing would replace, links followed; an OSError if it cannot."""
    target = Path(os.path.realpath(path))
    if target.is_dir() or Path(path).name in ("", "..") or str(path).endswith(os.sep):
        raise IsADirectoryError(f"{path}: a folder: name a file")
    if not os.path.lexists(target):
        above = next(folder for folder in target.parents if os.path.lexists(folder))
        if not above.is_dir():
            raise NotADirectoryError(f"{path}: {above} is no folder: name another place")
        return target
    mode = target.stat().st_mode
    if not stat.S_ISREG(mode):
        raise FileExistsError(f"{path}: neither a file nor a folder, so it is not replaced: name a file")
    if not mode & 0o222 or not os.access(target, os.W_OK):  # root may write what it marked as read-only
        raise PermissionError(f"{path}: read-only, so it is not replaced: permit writing (chmod) or name another file")
    return target


@contextmanager
def output(path: str) -> Iterator[TextIO]:
    if path == "-":
        with open(1, "w", encoding="utf-8", closefd=False) as file:
            yield file
    else:
        with atomic(path) as draft, open(draft, "w", encoding="utf-8") as file:
            yield file


def _draft(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.partial")


def install(source: Path, path: Path) -> None:
    """Move a file or folder to `path`, atomically."""
    replacing = atomic_folder if source.is_dir() else atomic
    with replacing(path) as draft:
        shutil.move(source, draft)


def does_not_exist(path: str) -> str:
    """Return the sentence about a path of the configuration at which nothing is."""
    if path.startswith("~") or "$" in path:
        return f"{path} does not exist; ~ and $ are not expanded: write the whole path"
    if Path(path).is_absolute():
        return f"{path} does not exist: correct the path, or put it there"
    return (
        f"{path} does not exist in {Path.cwd()}, where relative paths start (--directory changes that): write the "
        "whole path, or put it there"
    )


def to_trash(results: Path, paths: Iterable[Path]) -> str:
    """Move paths below `results` to a new folder in its trash; return a sentence with the way back."""
    paths = list(paths)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    place = results / TRASH / stamp
    number = 0
    while place.exists():
        number += 1
        place = results / TRASH / f"{stamp}-{number}"
    for path in paths:
        target = place / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    moved = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files and folders"
    return f"moved {moved} to {place}; to bring back: cp -a {place}/. {results}"


def text_value(config: Mapping[str, object], name: str) -> Any:
    """Return a value of a model's config.json, or of its `text_config` if the model has other parts too."""
    if config.get(name) is not None:
        return config[name]
    nested = config.get("text_config")
    if isinstance(nested, Mapping):
        return nested.get(name)
    return None


def write_json(path: str | Path, value: Mapping[str, object]) -> None:
    """Write indented JSON atomically; a ValueError for NaN."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: str | Path, text: str) -> None:
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object; a ValueError names the file."""
    from pydantic_core import from_json  # a job that only writes starts without it

    content = Path(path).read_bytes()
    try:
        value = from_json(content)  # three times as fast as `json`; `g2d status` reads thousands of files
    except ValueError:
        text = read_text(path)
        try:
            value = parse_json(text)
        except ValueError as error:
            raise ValueError(f"{path}: not readable as JSON ({error}); delete it to have it made again") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object; delete it to have it made again")
    return value


def parse_record(kind: type[Record], values: object, where: str) -> Record:
    """Return a dataclass from its JSON; a ValueError begins with `where` and names the wrong field."""
    from pydantic import ValidationError
    from pydantic_core import to_json

    # From Python, strict validation accepts no dictionary for a dataclass; from JSON it does.
    content = to_json(values, inf_nan_mode="null")
    try:
        adapter: TypeAdapter[Record] = _adapter(kind)  # type: ignore[arg-type]
        return adapter.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(": ".join([where, *map(str, first["loc"]), first["msg"]])) from None


@cache
def _adapter(kind: type[object]) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def read_text(path: str | Path) -> str:
    """Return the text of a file that the workflow made; a ValueError names file and line."""
    content = Path(path).read_bytes()
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: {_not_utf8(error)}; delete it to have it made again") from None


def _not_utf8(error: UnicodeDecodeError) -> str:
    if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16 instead of UTF-8"
    return f"not UTF-8 (byte 0x{error.object[error.start]:02x})"


def parse_json(text: str, *, surrogates: bool = False) -> Any:
    """Parse JSON, also NaN and infinities; a ValueError has only the reason.

    `surrogates` allows half a surrogate pair, as in a model's text. UTF-8 cannot encode it.
    """
    try:
        value = json.loads(text)
        if not surrogates and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"\\u{ord(error.object[error.start]):04x} is half a character") from None
    return value


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_line(line: bytes, *, surrogates: bool = False) -> dict[str, Any]:
    """Parse a line of a user's JSONL; a ValueError has reason and fix."""
    try:
        value = parse_json(line.decode("utf-8-sig"), surrogates=surrogates)
    except UnicodeDecodeError as error:
        raise ValueError(f"{_not_utf8(error)}: convert the file to UTF-8") from None
    except json.JSONDecodeError as error:  # its own message counts lines from this one
        reason = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        raise ValueError(f"not JSON ({reason}): write one JSON object a line") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error}): write one JSON object a line") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, not {type(value).__name__}: write one a line")
    return value


def open_given(path: str | Path) -> BufferedReader | gzip.GzipFile:
    """Open a user's file to read its bytes, decompressed if its name ends in .gz."""
    return gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb")


def read_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and object of every non-blank line of a user's JSONL; a ValueError names file and line."""
    with open_given(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = parse_line(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            yield number, row


def write_jsonl(path: str | Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write JSONL atomically, `NO_ROWS` without rows; a ValueError for NaN."""
    with atomic(path) as draft, open(draft, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        if file.tell() == 0:
            file.write(NO_ROWS)


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line, none for `NO_ROWS`; a ValueError if the file is empty or ends in a line."""
    text = read_text(path)
    if text == NO_ROWS:
        return iter(())
    if not text.endswith("\n"):
        reason = "cut short" if text else "empty"
        raise ValueError(f"{path}: {reason}; delete it to have it made again")
    return enumerate(text[:-1].split("\n"), 1)


def json_sha256(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
