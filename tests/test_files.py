"""Files are complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from g2d.files import atomic, read_json, read_lines, sha256, write_json, write_jsonl


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
    with atomic(folder) as draft:
        draft.mkdir()
        (draft / "fresh").touch()
    assert [file.name for file in folder.iterdir()] == ["fresh"]
    assert list(tmp_path.iterdir()) == [folder]


def test_json_round_trip_and_refusals(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"π": 1.5, "none": None})
    assert read_json(tmp_path / "a.json") == {"π": 1.5, "none": None}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", {"x": float("nan")})
    assert not (tmp_path / "b.json").exists()
    (tmp_path / "c.json").write_text('{"cut": ')
    with pytest.raises(ValueError, match=r"c\.json: not readable as JSON"):
        read_json(tmp_path / "c.json")
    (tmp_path / "d.json").write_text("[]")
    with pytest.raises(ValueError, match=r"d\.json: expected a JSON object"):
        read_json(tmp_path / "d.json")


def test_jsonl_keeps_one_row_a_line(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "two\nlines\u2028"}, {"text": "x"}])
    assert len((tmp_path / "a.jsonl").read_text(encoding="utf-8").split("\n")) == 3


def test_sha256_of_known_content(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(("text", "said"), [("", "empty"), ('{"a": 1}\n{"a', "cut short"), ('{"a": 1}', "cut short")])
def test_lines_that_were_cut_short_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=rf"a\.jsonl: {said}; delete it"):
        read_lines(tmp_path / "a.jsonl")
