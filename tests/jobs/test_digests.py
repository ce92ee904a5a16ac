"""Recorded digests: time stamps set by them, `g2d check-results`, and jobs that refuse changed files."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from g2d.cli import main
from g2d.jobs import digests
from g2d.jobs.digests import (
    ChangedError,
    changed_inputs,
    digest_file,
    inputs_file,
    keep_if_same,
    read_digests,
    remembered_digest,
    require_recorded,
    write_digests,
)
from g2d.jobs.files import sha256
from g2d.rewards import model

POOL = "pool.jsonl"
HARVEST = "results/m/harvest/rollouts.parquet"
CHECKPOINT = "results/m/grpo/checkpoint"
PAIRS = "results/m/harvest/pairs.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two jobs with digests, one without."""
    monkeypatch.chdir(tmp_path)
    for file in (POOL, HARVEST, f"{CHECKPOINT}/optimizer.pt", f"{CHECKPOINT}/.snakemake_timestamp", PAIRS):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    write_digests("results/logs/harvest_rollouts/m/k2.log", [HARVEST], {})
    write_digests("results/logs/train_grpo/m/k2.log", [CHECKPOINT], {})
    return tmp_path


def stamps(folder: Path) -> set[float]:
    return {path.stat().st_mtime for path in folder.rglob("*")}


def test_the_lists_have_the_format_of_sha256sum(folder: Path) -> None:
    assert str(digest_file("results/logs/evaluate/m/t1.3/k2.log")) == "results/digests/evaluate/m/t1.3/k2.sha256"
    assert {str(file) for file in read_digests(Path("results"))} == {HARVEST, f"{CHECKPOINT}/optimizer.pt"}
    listed = b"".join(file.read_bytes() for file in (folder / "results/digests").rglob("*.sha256"))
    assert subprocess.run(["sha256sum", "--check", "--quiet"], input=listed, check=False).returncode == 0


def test_files_with_and_without_a_digest_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-results"]) == 0
    output = capsys.readouterr().out
    assert "2 files are as their jobs wrote them, 0 differ, 0 are missing" in output
    assert "1 files have no recorded digest" in output  # the pairs


def test_changed_and_missing_files_are_named_and_nothing_is_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / HARVEST).unlink()
    (folder / CHECKPOINT / "optimizer.pt").write_text("something else")
    before = stamps(folder)
    assert main(["check-results"]) == 1
    output = capsys.readouterr().out
    assert f"{CHECKPOINT}/optimizer.pt: not what its job wrote" in output
    assert f"snakemake --cores all -R {CHECKPOINT}" in output
    assert f"{HARVEST}: missing" in output
    assert stamps(folder) == before


def test_a_folder_without_results_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder / "results/m")
    assert main(["check-results"]) == 2
    assert "no results folder in" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- time stamps

LOG = "results/logs/build_pairs/m/k2.log"
PAIRED = (LOG, [HARVEST, CHECKPOINT], [PAIRS])


@pytest.fixture
def paired(folder: Path) -> Path:
    """A job that read a file and a folder, and whose output looks older than both."""
    read = {file: sha256(file) for file in (HARVEST, f"{CHECKPOINT}/optimizer.pt")}
    write_digests(LOG, [PAIRS], read)
    os.utime(folder / PAIRS, (1000, 1000))
    for input_ in (HARVEST, f"{CHECKPOINT}/.snakemake_timestamp"):
        os.utime(folder / input_, (2000, 2000))
    return folder


def test_an_output_becomes_as_new_as_inputs_with_the_content_that_was_read(paired: Path) -> None:
    assert keep_if_same(*PAIRED)
    assert (paired / PAIRS).stat().st_mtime == 2000
    assert not keep_if_same(*PAIRED)  # nothing to do


@pytest.mark.parametrize("file", [HARVEST, f"{CHECKPOINT}/optimizer.pt", f"{CHECKPOINT}/new.pt"])
def test_an_output_stays_older_than_an_input_with_other_content(paired: Path, file: str) -> None:
    (paired / file).write_text("other content")
    os.utime(paired / file, (2000, 2000))
    assert not keep_if_same(*PAIRED)
    assert (paired / PAIRS).stat().st_mtime == 1000


def test_an_input_that_its_job_made_again_with_other_content_is_no_longer_what_was_read(paired: Path) -> None:
    (paired / HARVEST).write_text("sampled again")
    os.utime(paired / HARVEST, (3000, 3000))
    write_digests("results/logs/harvest_rollouts/m/k2.log", [HARVEST], {})
    assert not keep_if_same(*PAIRED)


def test_an_emptied_checkpoint_has_the_content_that_was_read(paired: Path) -> None:
    write_digests(LOG, [PAIRS], {HARVEST: sha256(HARVEST), f"{CHECKPOINT}/gone.pt": "0", **optimizer()})
    assert keep_if_same(*PAIRED)


def optimizer() -> dict[str, str]:
    return {f"{CHECKPOINT}/optimizer.pt": sha256(f"{CHECKPOINT}/optimizer.pt")}


def test_an_input_without_a_record_is_not_what_was_read(paired: Path) -> None:
    inputs_file(LOG).unlink()
    assert not keep_if_same(*PAIRED)


def test_an_output_of_the_future_becomes_present(paired: Path) -> None:
    ahead = time.time() + 3600
    os.utime(paired / PAIRS, (ahead, ahead))
    assert not keep_if_same(*PAIRED)
    assert 2000 < (paired / PAIRS).stat().st_mtime <= time.time()


# ----------------------------------------------------------------------------------------------------------------------


def test_a_damaged_list_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = digest_file("results/logs/train_grpo/m/k2.log")
    reasons = {b"nonsense\n": ", line 1: no digest and file", b"": ": empty", b"\xff\n": ", line 1: not UTF-8"}
    for content, reason in reasons.items():
        listed.write_bytes(content)
        assert main(["check-results"]) == 2
        output = capsys.readouterr().err
        assert output.startswith(f"g2d check-results: {listed}{reason}")
        assert output.endswith("; delete it, and its files count as unknown\n")


# ------------------------------------------------------------------------------------------------- what a job reads


def change(file: str) -> None:
    """Change the content, but neither size nor mtime."""
    times, content = Path(file).stat(), Path(file).read_text()
    Path(file).write_text(content.swapcase())
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_changed_input_is_named_with_both_digests_its_job_and_the_fix(folder: Path) -> None:
    require_recorded([HARVEST, CHECKPOINT])
    before = sha256(HARVEST)
    change(HARVEST)
    with pytest.raises(ChangedError) as refusal:
        require_recorded([HARVEST, CHECKPOINT])
    output = str(refusal.value)
    assert output.startswith(f"{HARVEST}: not the file that harvest_rollouts/m/k2 recorded: ")
    assert f"sha256 {sha256(HARVEST)}, recorded {before}; " in output
    assert output.endswith(f"made again: the same snakemake command with -R {HARVEST}")
    change(f"{CHECKPOINT}/optimizer.pt")
    with pytest.raises(ChangedError, match=rf"optimizer\.pt: .*{'recorded ' + '.' * 64} \(1 more.* -R {CHECKPOINT}$"):
        require_recorded([CHECKPOINT, HARVEST])


def test_files_without_a_digest_are_counted_and_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_recorded([HARVEST])
    assert capsys.readouterr().out == ""
    change(PAIRS)
    (folder / CHECKPOINT / "optimizer.pt").unlink()  # `checkpoints.keep: last` empties checkpoints
    require_recorded([PAIRS, HARVEST, CHECKPOINT])
    assert "1 of 2 files that this job reads have no recorded digest" in capsys.readouterr().out


def test_the_list_of_a_renamed_rule_refuses_nothing(folder: Path) -> None:
    """The list stays, with the digest of the file before the new rule made it again."""
    change(HARVEST)
    write_digests("results/logs/harvest/m/k2.log", [HARVEST], {})
    require_recorded([HARVEST])


# ---------------------------------------------------------------------------------------------------- files of the user


def test_a_file_is_read_again_only_when_something_about_it_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".snakemake").mkdir()
    monkeypatch.setattr(digests, "SETTLED_S", -1.0)  # no file counts as just written
    monkeypatch.setattr(digests, "REMEMBERED_FROM", 0)  # every file counts as large
    read: list[str] = []
    monkeypatch.setattr(digests, "sha256", lambda file: read.append(str(file)) or sha256(file))

    def ask() -> tuple[str, int]:
        digests._memory.cache_clear()  # another process
        read.clear()
        return remembered_digest(POOL), len(read)

    first = sha256(POOL)
    assert [ask(), ask(), ask()] == [(first, 1), (first, 0), (first, 0)]
    times = (folder / POOL).stat()
    (folder / POOL).write_text(POOL.upper())  # same size, inode and mtime
    os.utime(folder / POOL, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (folder / POOL).stat().st_mtime_ns == times.st_mtime_ns
    assert [ask(), ask()] == [(sha256(POOL), 1), (sha256(POOL), 0)]
    (folder / digests.MEMORY).write_text("{")  # damaged: counts as lost
    assert [ask(), ask()] == [(sha256(POOL), 1), (sha256(POOL), 0)]


def test_a_changed_reward_model_has_another_digest_with_equal_time_stamps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".snakemake").mkdir()
    monkeypatch.setattr(digests, "SETTLED_S", -1.0)
    monkeypatch.setattr(digests, "REMEMBERED_FROM", 0)
    weights = folder / "judge/model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"head")
    before, times = model.digest(weights.parent), weights.stat()
    weights.write_bytes(b"tail")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert model.digest(weights.parent) != before


def test_a_file_that_has_just_been_written_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may change again within the same tick of the clock."""
    (folder / ".snakemake").mkdir()
    monkeypatch.setattr(digests, "REMEMBERED_FROM", 0)
    ahead = time.time_ns() + 3600 * 10**9
    os.utime(folder / POOL, ns=(ahead, ahead))
    assert remembered_digest(POOL) == sha256(POOL)
    assert not (folder / digests.MEMORY).exists()


def test_files_that_a_job_read_are_compared_wherever_they_are(folder: Path) -> None:
    log = "results/logs/load_problems/pool.log"
    assert changed_inputs(log, [POOL]) == []  # not recorded
    write_digests(log, [HARVEST], {POOL: sha256(POOL)})
    assert changed_inputs(log, [POOL]) == []
    (folder / POOL).rename(folder / "moved.jsonl")
    assert changed_inputs(log, ["moved.jsonl"]) == []
    (folder / "moved.jsonl").write_text("another")
    assert changed_inputs(log, ["moved.jsonl"]) == ["moved.jsonl"]
    assert changed_inputs(log, []) == [POOL]
