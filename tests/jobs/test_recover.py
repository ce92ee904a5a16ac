"""Files that `g2d recover` moves and leaves; tests/workflow/slurm tests it with jobs and a killed Snakemake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snakemake.persistence.file import FilePersistence

from g2d.cli import main
from g2d.jobs.digests import read_digests, write_digests
from g2d.jobs.files import sha256

RESULTS = Path("results")
HALF = ["results/m/half.parquet", "results/m/checkpoint", f"results/m/{'a' * 300}/policy.json"[:250]]
FINISHED = "results/m/finished.parquet"
ELSEWHERE = "elsewhere.jsonl"
NEVER_STARTED = "results/m/old.parquet"


def write(file: str, text: str = "an output") -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text)


def snakemake() -> FilePersistence:
    """Return Snakemake's records of this folder."""
    return FilePersistence(path=Path(".snakemake").absolute())


def lock(outputs: Iterable[str]) -> None:
    """Write the lock of a killed Snakemake: it has all outputs of its plan, of any age."""
    write(".snakemake/locks/0.output.lock", "".join(f"{file}\n" for file in outputs))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A killed run: three jobs did not end, the end of one was not seen, one was not started."""
    monkeypatch.chdir(tmp_path)
    for file in (HALF[0], f"{HALF[1]}/optimizer.pt", HALF[2], FINISHED, ELSEWHERE, NEVER_STARTED):
        write(file)
    lock([*HALF, FINISHED, NEVER_STARTED])
    for name in (*HALF, FINISHED, ELSEWHERE, "results/m/absent.json"):
        snakemake()._mark_incomplete(name, None)
    write_digests("results/logs/evaluate/finished.log", [FINISHED], {})
    write(HALF[0], "made again by another job")
    write_digests("results/logs/evaluate/half.log", [HALF[0]], {})
    write(HALF[0])
    return tmp_path


def test_nothing_is_done_without_yes(folder: Path) -> None:
    assert main(["recover"]) == 1
    for file in HALF:
        assert Path(file).exists()
    assert (folder / ".snakemake/locks").exists()


def test_it_says_what_it_would_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["recover"])
    output = capsys.readouterr().out
    for file in HALF:
        assert f"move {file} to results/.trash: its job was started and did not finish it" in output
    assert f"leave {FINISHED}: its job finished it; " in output
    assert f"leave {ELSEWHERE}: it is not among the results; " in output
    assert NEVER_STARTED not in output


def test_it_refuses_while_a_snakemake_runs_in_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["bash", "-c", "exec -a snakemake sleep 3600"], cwd=folder) as process:
        while "snakemake" not in Path(f"/proc/{process.pid}/cmdline").read_text().split("\0"):
            time.sleep(0.01)
        assert main(["recover", "--yes"]) == 2
        process.kill()
    output = f"process {process.pid} is a Snakemake that is running in {folder}: end it first (Ctrl-C)"
    assert output in capsys.readouterr().err
    assert (folder / ".snakemake/locks").exists()


def test_a_tmux_session_with_its_name_is_no_snakemake(folder: Path) -> None:
    sleeps = "exec -a tmux sh -c 'sleep 3600; :' new -s snakemake"
    with subprocess.Popen(["bash", "-c", sleeps], cwd=folder) as process:
        while "snakemake" not in Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[-2:]:
            time.sleep(0.01)
        assert main(["recover", "--yes"]) == 0
        process.kill()


def test_it_waits_for_jobs_on_this_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job of a killed Snakemake saves its step, and would write into the folder of the next run."""
    program = "import time\nopen('begun', 'w').close()\ntime.sleep(1000)"
    job = subprocess.Popen([sys.executable, "-c", program], cwd=folder, env=os.environ | {"G2D_RUN": "1 1 here"})
    while not (folder / "begun").exists():
        time.sleep(0.05)
    assert main(["recover"]) == 1
    assert f"wait for process {job.pid}, a job of the killed run" in capsys.readouterr().out
    with ThreadPoolExecutor() as threads:
        recovered = threads.submit(main, ["recover", "--yes"])
        time.sleep(2)
        assert (folder / ".snakemake/locks").exists()
        job.terminate()
        job.wait()
        assert recovered.result() == 0
    assert not (folder / ".snakemake/locks").exists()


def test_yes_moves_unfinished_outputs_and_the_lock(folder: Path) -> None:
    assert main(["recover", "--yes"]) == 0
    for file in (FINISHED, ELSEWHERE, NEVER_STARTED):
        assert Path(file).read_text() == "an output"
    for file in HALF:
        assert not Path(file).exists()
    assert not (folder / ".snakemake/locks").exists()


def test_yes_prints_how_to_restore_what_it_moved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["recover", "--yes"])
    [line] = [line for line in capsys.readouterr().out.splitlines() if "to bring back: " in line]
    subprocess.run(line.partition("to bring back: ")[2], shell=True, check=True)
    for file in (HALF[0], f"{HALF[1]}/optimizer.pt", HALF[2]):
        assert Path(file).read_text() == "an output"
    assert main(["recover"]) == 0


def test_a_folder_that_every_snakemake_leaves_empty_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake/locks").mkdir(parents=True)
    assert main(["recover"]) == 0
    assert capsys.readouterr().out == "nothing to recover: no jobs, no lock\n"


JOBS = st.integers(0, 2)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["begin", "half", "finish", "seen", "edit", "rewrite"]), JOBS),
        st.tuples(st.just("touch"), JOBS, st.sampled_from([0, 10**9, 2 * 10**9])),
        st.tuples(st.sampled_from(["copy", "kill", "recover"])),
    ),
    max_size=25,
)


@settings(max_examples=20, deadline=None)
@given(OPERATIONS)
def test_no_file_with_a_recorded_digest_is_ever_lost(operations: list[tuple[Any, ...]]) -> None:
    """Operations in any order: copies without time stamps, `touch`, edits, jobs, kills."""
    with TemporaryDirectory() as root, chdir(root):
        Path("now").mkdir()
        os.chdir("now")
        for i in range(3):
            do("finish", i)
        for operation in [*operations, ("kill",), ("recover",)]:
            do(*operation)


def outputs_of(job: int) -> list[str]:
    return [f"results/m/{job}/rollouts.parquet", f"results/m/{job}/cost.json"]


def digests_of(pattern: str) -> dict[Path, str]:
    return {file: sha256(file) for file in RESULTS.glob(pattern)}


def do(operation: str, i: int = 0, time: int = 0) -> None:  # noqa: PLR0912 -- one after another
    """Do one of the operations; after `recover`, check that no recorded file is lost."""
    outputs = outputs_of(i)
    if operation == "begin":  # one machine; on a cluster the outputs stay until the job starts
        for file in outputs:
            snakemake()._mark_incomplete(file, None)
            Path(file).unlink(missing_ok=True)
    elif operation == "half":
        snakemake()._mark_incomplete(outputs[0], None)
        write(outputs[0], f"half {os.urandom(2).hex()}")
    elif operation == "finish":
        for file in outputs:
            write(file, f"whole {os.urandom(1).hex()}")
        write_digests(f"results/logs/evaluate/{i}.log", outputs, {})
    elif operation == "seen":
        for file in outputs:
            snakemake()._unmark_incomplete(file)
    elif operation == "edit":
        write(outputs[0], "edited")
    elif operation == "rewrite":  # the same bytes anew
        if Path(outputs[0]).exists():
            write(outputs[0], Path(outputs[0]).read_text())
    elif operation == "touch":
        for file in filter(os.path.exists, outputs):
            os.utime(file, (time, time))
    elif operation == "copy":
        here = Path.cwd()
        shutil.copytree(here, here.parent / "copy", copy_function=shutil.copyfile)
        os.chdir(here.parent)
        shutil.rmtree(here)
        (here.parent / "copy").rename(here)
        os.chdir(here)
    elif operation == "kill":
        lock([*outputs_of(0), *outputs_of(1), *outputs_of(2)])
    elif operation == "recover":
        before = digests_of("m/*/*")
        recorded = read_digests(RESULTS)
        assert main(["recover", "--yes"]) == 0
        after = digests_of("m/*/*")
        assert before.items() & recorded.items() <= after.items()
        in_trash = digests_of(".trash/*/m/*/*").values()
        for file in before.keys() - after.keys():
            assert before[file] in in_trash
