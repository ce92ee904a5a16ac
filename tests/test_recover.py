"""What `g2d recover` takes for unrecorded; with jobs and a killed Snakemake it is tested on a real Slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from g2d.cli import main
from g2d.jobs.recover import _record, unrecorded_outputs

NAMES = ["recorded.txt", "written-again.txt", "unrecorded.txt", "absent.txt"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("locks", "metadata"):
        (tmp_path / ".snakemake" / name).mkdir(parents=True)
    (tmp_path / ".snakemake/locks/0.output.lock").write_text("".join(f"{name}\n" for name in NAMES[:4]))
    (tmp_path / "other.txt").write_text("not of this run")
    for name in NAMES[:3]:
        (tmp_path / name).write_text("an output")
    for name in NAMES[:2]:
        _record(tmp_path, name).write_text("{}")
    later = _record(tmp_path, NAMES[1]).stat().st_mtime + 5
    os.utime(tmp_path / NAMES[1], (later, later))
    return tmp_path


def test_outputs_without_a_record_since_they_were_written(folder: Path) -> None:
    assert [path.name for path in unrecorded_outputs(folder)] == NAMES[1:3]


def test_nothing_is_done_without_yes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recover"]) == 1
    assert f"delete {folder / NAMES[2]}" in capsys.readouterr().out
    assert (folder / NAMES[2]).exists()
    assert (folder / ".snakemake/locks").exists()


def test_yes_deletes_them_and_removes_the_lock(folder: Path) -> None:
    assert main(["recover", "--yes"]) == 0
    assert {path.name for path in folder.iterdir()} == {".snakemake", NAMES[0], "other.txt"}
    assert not (folder / ".snakemake/locks").exists()
    assert main(["recover"]) == 0


def test_a_folder_that_every_snakemake_leaves_empty_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake/locks").mkdir(parents=True)
    assert main(["recover"]) == 0
    assert capsys.readouterr().out == "nothing to recover: no jobs, no lock\n"
