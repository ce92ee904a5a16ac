"""One process at a time works in a work folder: who comes second waits for an orphan and is refused by anybody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from g2d.jobs.orphans import RUN, name_of
from g2d.regimes.common import stopping
from g2d.regimes.common.stopping import LOCK, work_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open (Linux)")

WORKS = """
import os, sys
from pathlib import Path
from g2d.regimes.common.stopping import work_folder
with work_folder(Path("work")):
    {then}
    print("there", flush=True)
    sys.stdin.read()
"""


@contextmanager
def process(code: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, cwd=folder, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running
        running.kill()


@contextmanager
def working(folder: Path, then: str = "", **environment: str) -> Iterator[subprocess.Popen[str]]:
    with process(WORKS.format(then=then), folder, **environment) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "there\n"
        yield running


@pytest.fixture
def run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A Snakemake, as far as its jobs can see."""
    with process("import sys; sys.stdin.read()", tmp_path) as snakemake:
        yield snakemake


@pytest.fixture(autouse=True)
def of_another_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(RUN, name_of(os.getpid()))
    monkeypatch.chdir(tmp_path)


def test_the_folder_vanishes_with_success_and_stays_with_a_failure() -> None:
    work = Path("work")
    with pytest.raises(ValueError, match="no"), work_folder(work):
        (work / "step-1").mkdir()
        raise ValueError("no")
    with work_folder(work):
        assert (work / "step-1").is_dir()
    assert not work.exists()


def test_a_process_of_another_run_is_named(tmp_path: Path, run: subprocess.Popen[str]) -> None:
    with working(tmp_path, **{RUN: name_of(run.pid)}) as other:
        message = rf"work: process {other.pid} on .* works there for another Snakemake: end that, then the same command"
        with pytest.raises(RuntimeError, match=message), work_folder(Path("work")):
            pass
        other.kill()
        other.wait()
        with work_folder(Path("work")):  # a stale lock is none
            pass


@pytest.mark.parametrize("same_run", [False, True])
def test_an_orphan_and_an_earlier_attempt_are_waited_for(
    tmp_path: Path, run: subprocess.Popen[str], same_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when the wait begins."""
    messages = []
    with working(tmp_path, **{RUN: name_of(os.getpid() if same_run else run.pid)}) as other:
        monkeypatch.setattr(stopping, "say", lambda text: (messages.append(text), other.kill()))
        run.kill()
        run.wait()
        with work_folder(Path("work")):
            assert Path("work").is_dir()
    assert messages == [f"waiting for process {other.pid}, an earlier attempt that is saving its step in work"]


def test_a_folder_is_not_refused_because_of_children_of_a_killed_process(tmp_path: Path) -> None:
    forks = "child = os.fork()\n    if child == 0: sys.stdin.read(); os._exit(0)"
    with working(tmp_path, forks) as other:
        other.kill()
        other.wait()
        with work_folder(Path("work")):
            pass


def test_a_requeued_job_is_not_refused_the_folder_of_its_lost_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with working(tmp_path, SLURM_JOB_ID="17"):
        lock = Path("work") / LOCK
        lock.write_text(lock.read_text().replace(os.uname().nodename, "lost"))
        with work_folder(Path("work")):
            pass
