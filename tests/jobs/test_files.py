"""Files are complete or absent."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.jobs.files import (
    DiskError,
    atomic,
    atomic_folder,
    copy_folder,
    disk_errors,
    install,
    parse_json,
    parse_line,
    read_json,
    read_lines,
    read_rows,
    write_json,
    write_jsonl,
    write_text,
)
from g2d.problems import read_problems
from g2d.problems.problem_keys import LocalProblems
from g2d.problems.sources import load_problems
from g2d.rollouts.pairs import PAIR_KEYS, read_pairs
from g2d.tables.frames import read_table


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic(path) as draft:
        draft.write_text("half of the ne")
        raise RuntimeError("power cut")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "stale").touch()
    with atomic_folder(folder) as draft:
        draft.mkdir()
        (draft / "fresh").touch()
    assert [file.name for file in folder.iterdir()] == ["fresh"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_never_replaces_a_file_nor_the_reverse(tmp_path: Path) -> None:
    folder, file = tmp_path / "mine", tmp_path / "file"
    folder.mkdir()
    (folder / "precious").touch()
    file.touch()
    for name in (folder, folder / ".." / "mine", folder / "..", tmp_path / "new" / "..", f"{tmp_path}/new/"):
        with pytest.raises(IsADirectoryError, match="name a file"), atomic(name):
            raise AssertionError
    with pytest.raises(NotADirectoryError, match="move it away"), atomic_folder(file) as draft:
        draft.mkdir()
    with pytest.raises(NotADirectoryError), atomic_folder(folder) as draft:
        draft.touch()
    draft.unlink()
    with pytest.raises(IsADirectoryError), atomic(tmp_path / "late") as draft:
        draft.touch()
        (tmp_path / "late").mkdir()
    assert (folder / "precious").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "late", "mine"]


def test_links_stay_and_their_targets_are_replaced(tmp_path: Path) -> None:
    real, link, links = tmp_path / "disk" / "a.txt", tmp_path / "a.txt", tmp_path / "links"
    real.parent.mkdir()
    real.write_text("old")
    link.symlink_to(Path("disk/a.txt"))
    links.symlink_to(link)
    write_text(links, "new")
    assert (real.read_text(), link.is_symlink(), links.is_symlink()) == ("new", True, True)
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path / "disk")
    with atomic_folder(folder) as draft:
        draft.mkdir()
        (draft / "fresh").touch()
    assert folder.is_symlink()
    assert [file.name for file in (tmp_path / "disk").iterdir()] == ["fresh"]
    for name in "ab":
        (tmp_path / f"loop-{name}").symlink_to(tmp_path / f"loop-{'ba'['ab'.index(name)]}")
    with pytest.raises(OSError, match="symbolic links"):
        write_text(tmp_path / "loop-a", "new")


def test_modes_are_kept_and_the_umask_is_respected(tmp_path: Path) -> None:
    def mode(path: Path) -> int:
        return path.stat().st_mode & 0o777

    old = tmp_path / "old"
    old.write_text("private")
    old.chmod(0o600)
    with atomic(old) as draft:
        draft.write_text("still private")
        assert mode(draft) == 0o600  # already at its first byte
    assert mode(old) == 0o600
    for umask, expected in ((0o077, 0o600), (0o022, 0o644)):
        before = os.umask(umask)
        try:
            write_text(tmp_path / f"{umask}", "new")
        finally:
            os.umask(before)
        assert mode(tmp_path / f"{umask}") == expected


def test_read_only_files_and_devices_are_not_replaced(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("old")
    kept.chmod(0o444)
    with pytest.raises(PermissionError, match=r"kept: read-only, so it is not replaced"):  # also for root
        write_text(kept, "new")
    with pytest.raises(FileExistsError, match="/dev/null: neither a file nor a folder"):
        write_text("/dev/null", "new")
    with pytest.raises(NotADirectoryError, match=r"kept/a/b: .*/kept is no folder: name another place"):
        write_text(kept / "a" / "b", "new")
    assert kept.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_a_finished_part_moves_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_disk(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "weights").write_text("w")
    monkeypatch.setattr(os, "rename", other_disk)
    install(tmp_path / "work", tmp_path / "adapter")
    assert (tmp_path / "adapter" / "weights").read_text() == "w"
    install(tmp_path / "adapter" / "weights", tmp_path / "weights")
    assert (tmp_path / "weights").read_text() == "w"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "weights"]


def test_json_round_trip_and_refusals(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"π": 1.5, "none": None})
    assert read_json(tmp_path / "a.json") == {"π": 1.5, "none": None}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", {"x": float("nan")})
    assert not (tmp_path / "b.json").exists()
    for text, reason in (('{"cut": ', "not readable"), ("[]", "expected"), ("[" * 100_000, ".*nested too deeply")):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(ValueError, match=rf"c\.json: {reason}"):
            read_json(tmp_path / "c.json")


def test_jsonl_keeps_one_row_a_line(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "two\nlines\u2028"}, {"text": "x"}])
    assert len((tmp_path / "a.jsonl").read_text(encoding="utf-8").split("\n")) == 3
    write_jsonl(tmp_path / "none.jsonl", [])
    assert list(read_lines(tmp_path / "none.jsonl")) == []


@pytest.mark.parametrize(
    ("text", "message"), [("", "empty"), ('{"a": 1}\n{"a', "cut short"), ('{"a": 1}', "cut short")]
)
def test_lines_that_were_cut_short_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=rf"a\.jsonl: {message}; delete it"):
        read_lines(tmp_path / "a.jsonl")


GIVEN = b'{"problem_id": "a", "prompt": "p", "completion": "c", "answer": "5"}'
BROKEN = {  # bytes of a second line, and what is message about it
    "latin-1": ('{"prompt": "Zürich"}'.encode("latin-1"), "not UTF-8 \\(byte 0xfc\\)"),
    "deep": (b'{"prompt": ' + b"[" * 100_000, "nested too deeply"),
    "cut": (b'{"prompt": "p', "(Unterminated string|Invalid control character)"),
}
POOL = LocalProblems.model_validate({"source": "local", "path": "?", "fields": {"prompt": "prompt"}})
READERS: dict[str, Callable[[Path], Any]] = {
    "pool": lambda path: load_problems("pool", POOL.model_copy(update={"path": str(path)})),
    "rows": lambda path: list(read_rows(path)),
    "problems": read_problems,
    "pairs": read_pairs,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("how", BROKEN)
def test_every_reader_names_file_and_line(tmp_path: Path, reader: str, how: str) -> None:
    given, path = GIVEN, tmp_path / "given.jsonl"
    if reader == "problems":
        write_jsonl(
            path, [{"problem_id": "a", "prompt": "p", "answer": "5", "level": 1, "subject": "s", "source": "s"}]
        )
        given = path.read_bytes().strip()
    elif reader == "pairs":
        given = json.dumps(dict.fromkeys(PAIR_KEYS, 0)).encode()
    line, message = BROKEN[how]
    path.write_bytes(given + b"\n" + line + b"\n")
    with pytest.raises(ValueError, match=rf"given\.jsonl, line 2: .*{message}") as caught:
        READERS[reader](path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_utf_16_is_named(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "given.jsonl"
    path.write_text(GIVEN.decode() + "\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"given\.jsonl, line 1: UTF-16 instead of UTF-8"):
        READERS[reader](path)


def test_half_a_surrogate_pair_is_only_read_in_completions(tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    path.write_bytes(GIVEN + b"\n" + GIVEN.replace(b'"p"', rb'"\ud800 p"') + b"\n")
    for reader in ("pool", "rows"):
        with pytest.raises(ValueError, match=r"given\.jsonl, line 2: not JSON \(\\ud800 is half a character\)"):
            READERS[reader](path)
    assert len([parse_line(line, surrogates=True) for line in path.read_bytes().splitlines()]) == 2
    assert parse_json(r'"\ud83d\ude00 \\ud800"') == "\U0001f600 \\ud800"  # a whole pair, and six plain characters


@pytest.mark.parametrize("read", [read_json, partial(read_table, columns={})], ids=["json", "csv"])
def test_results_in_another_encoding_are_named(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    (tmp_path / "a").write_bytes('{\n"Zürich"\n'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"a, line 2: not UTF-8 \(byte 0xfc\); delete it to have it made again"):
        read(tmp_path / "a")
    (tmp_path / "a").write_text("{}\n", encoding="utf-16")
    with pytest.raises(ValueError, match="a, line 1: UTF-16 instead of UTF-8"):
        read(tmp_path / "a")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), _VALUES), st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_json_is_read_like_the_json_module(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any], ensure_ascii: bool, mark: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    text = json.dumps(value, ensure_ascii=ensure_ascii)
    path.write_text(mark + text, encoding="utf-8")
    assert repr(read_json(path)) == repr(json.loads(text))  # the same types, and NaN is NaN


def test_a_disk_that_was_full_while_a_folder_was_copied_is_named(tmp_path: Path) -> None:
    """`copytree` raises a list of messages, without an errno; there may be room again by then."""
    failed = shutil.Error([("a", "b", f"[Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}: 'b'")])
    message = r"step-1: cannot be written \(No space left on device\)"
    with pytest.raises(DiskError, match=message), disk_errors(tmp_path / "step-1"):
        raise failed
    with pytest.raises(shutil.Error), disk_errors(tmp_path / "step-1"):
        raise shutil.Error([("a", "b", "[Errno 2] No such file or directory: 'a'")])


def test_a_folder_that_no_longer_fits_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/weights").write_bytes(bytes(2**16))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**12, before[1]))
    try:
        with pytest.raises(DiskError, match=r"b: cannot be written \(File too large\)"):
            copy_folder(tmp_path / "a", tmp_path / "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    copy_folder(tmp_path / "a", tmp_path / "c", "weights")
    assert not [*(tmp_path / "c").iterdir()]
