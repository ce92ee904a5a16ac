"""Log, cost and error message of a stage, in a subprocess because a stage redirects its output."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from g2d.jobs.environment import AVX2, pin_embedded
from g2d.jobs.files import sha256
from g2d.jobs.stage import error_of, require_clock
from tests.attempts import read_attempts
from tests.jobs.stage_script import command


def run(
    folder: Path, body: str, rule: str = "train_dpo", read: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | environment
    return subprocess.run(
        command(body, rule, read=read), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_output_goes_to_the_log_and_the_bill_is_written(tmp_path: Path) -> None:
    done = run(tmp_path, "pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    logged = (tmp_path / "logs/a.log").read_text().splitlines()
    assert sorted(logged) == ["3", "from a child process", "from python"]
    cost = json.loads((tmp_path / "cost.json").read_text())
    assert (cost["stage"], cost["tokens_generated"], cost["device"], cost["ancestry"]) == ("train_dpo", 7, "cpu", [])
    assert cost["device_s"] == cost["wall_s"] > 0
    assert cost["threads"] == 3


def test_inputs_are_recorded_as_before_the_job(tmp_path: Path) -> None:
    """The digest of an input that changes while the job runs is taken before the job."""
    (tmp_path / "pool.jsonl").write_text("before")
    before = sha256(tmp_path / "pool.jsonl")
    run(tmp_path, "open('pool.jsonl', 'w').write('after')", read=["pool.jsonl"])
    assert f"{before}  pool.jsonl\n" in (tmp_path / "digests/a.inputs").read_text()


def test_a_clock_that_is_behind_stops_a_job_before_it_begins_or_leaves_its_work(tmp_path: Path) -> None:
    """Snakemake would delete the outputs of a finished job, because they look older than its inputs."""
    file = tmp_path / "pairs.jsonl"
    set_ahead = "import os, time; os.utime('pairs.jsonl', (time.time() + 7200,) * 2)"
    file.write_text("")
    done = run(tmp_path, set_ahead, read=["pairs.jsonl"])
    assert done.returncode == 1
    assert "pairs.jsonl: 120 minutes newer than this machine's clock" in done.stderr
    assert not (tmp_path / "cost.json").exists()
    done = run(tmp_path, "open('begun', 'w')", read=["pairs.jsonl"])
    assert "find results -newermt now -exec touch {} +" in done.stderr
    assert not (tmp_path / "begun").exists()


def test_the_command_that_is_printed_for_such_a_clock_ends_the_trouble(tmp_path: Path) -> None:
    file = tmp_path / "results/pairs.jsonl"
    file.parent.mkdir()
    file.touch()
    os.utime(file, (time.time() + 7200,) * 2)
    done = run(tmp_path, "pass", read=["results/pairs.jsonl"])
    [command] = re.findall(r"ahead: (find .*)$", done.stderr, re.M)
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True)
    assert run(tmp_path, "pass", read=["results/pairs.jsonl"]).returncode == 0


def test_a_clock_that_is_a_little_behind_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("")
    newer = time.time() + 0.5
    os.utime(tmp_path / "pairs.jsonl", (newer, newer))
    require_clock([str(tmp_path / "pairs.jsonl"), str(tmp_path / "absent")])
    assert time.time() >= newer


FAILING = "raise ValueError('pairs.jsonl: no pairs')"


def test_a_failure_is_one_line_and_a_traceback_in_the_log(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING)
    assert done.returncode == 1
    assert done.stderr == f"train_dpo: pairs.jsonl: no pairs\n  details: {tmp_path}/logs/a.log\n"
    assert "Traceback" in (tmp_path / "logs/a.log").read_text()
    assert error_of(tmp_path / "logs/a.log", "train_dpo") == done.stderr.rstrip()
    assert not (tmp_path / "cost.json").exists()


def test_a_failure_is_recorded_with_its_cost(tmp_path: Path) -> None:
    run(tmp_path, FAILING)
    (attempt,) = read_attempts(tmp_path / "attempts")
    assert (attempt.status, attempt.cost.tokens_generated) == ("failed", 7)
    assert (attempt.cost.job, attempt.cost.stage) == ("cost", "train_dpo")
    assert attempt.cost.wall_s > 0


def test_an_error_is_printed_if_the_disk_of_the_log_is_full(tmp_path: Path) -> None:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    failing = command("raise ValueError('work: disk full')", log="/dev/full")
    done = subprocess.run(failing, cwd=tmp_path, env=buffered, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("train_dpo: work: disk full\n")
    assert done.returncode == 1


def started(folder: Path) -> subprocess.Popen[str]:
    """A job in the middle of its work."""
    process = subprocess.Popen(command("import time; open('begun', 'w').close(); time.sleep(600)"), cwd=folder)
    while not (folder / "begun").exists():
        time.sleep(0.02)
    return process


def test_a_training_that_saved_its_step_leaves_no_traceback(tmp_path: Path) -> None:
    body = "from g2d.regimes.common.checkpoints import TrainingStoppedError as E; raise E('at step 2, which is kept')"
    done = run(tmp_path, body)
    assert done.returncode == 1
    assert done.stderr.startswith("train_dpo: at step 2, which is kept\n")
    log = (tmp_path / "logs/a.log").read_text()
    assert "at step 2, which is kept" in log
    assert "Traceback" not in log


def test_a_stopped_job_is_recorded_as_stopped(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 1
    assert "Stopped: stopped by SIGTERM" in (tmp_path / "logs/a.log").read_text()
    (attempt,) = read_attempts(tmp_path / "attempts")
    assert (attempt.status, attempt.cost.tokens_generated) == ("stopped", 7)


def test_a_stopped_fork_does_not_stop_the_job(tmp_path: Path) -> None:
    """A pool ends its workers in this way: no traceback in the log, no failed attempt."""
    body = """import time
    ready, says = os.pipe()
    if not (child := os.fork()):
        os.write(says, b".")
        time.sleep(60)
    os.read(ready, 1)
    os.kill(child, 15)
    print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    assert run(tmp_path, body).returncode == 0
    log = (tmp_path / "logs/a.log").read_text()
    assert "ended with 143" in log
    assert "Traceback" not in log
    assert [attempt.status for attempt in read_attempts(tmp_path / "attempts")] == ["ok"]


def test_a_job_that_was_killed_is_known_when_it_runs_again(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert read_attempts(tmp_path / "attempts") == []  # it is running
    process.kill()
    process.wait()
    run(tmp_path, "pass")
    killed, ok = read_attempts(tmp_path / "attempts")
    assert (killed.status, ok.status) == ("killed", "ok")
    assert killed.updated < ok.started


def test_an_attempt_that_cannot_be_recorded_does_not_fail_the_job(tmp_path: Path) -> None:
    (tmp_path / "attempts").write_text("in the way")
    assert run(tmp_path, "pass").returncode == 0
    assert (tmp_path / "cost.json").exists()
    assert "this attempt is not recorded" in (tmp_path / "logs/a.log").read_text()


PRINT_VARIABLES = (
    "print(*(os.environ.get(name) for name in ('HF_HUB_OFFLINE', 'HF_TOKEN', 'HF_HUB_DISABLE_TELEMETRY')))"
)


@pytest.mark.parametrize(
    ("rule", "expected_line"),
    [("evaluate", "1 None 1"), ("load_problems", "0 hf_secret 1"), ("pretrained_model", "0 hf_secret 1")],
)
def test_only_fetching_rules_have_the_hub_and_its_token(tmp_path: Path, rule: str, expected_line: str) -> None:
    assert run(tmp_path, PRINT_VARIABLES, rule, HF_HUB_OFFLINE="0", HF_TOKEN="hf_secret").returncode == 0
    assert expected_line in (tmp_path / "logs/a.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("wildcards", "given", "pinned"),
    [
        ({"model": "demo"}, {}, True),
        ({"policy": "demo/seed0/dpo/g2/k2"}, {}, True),
        ({"model": "demo"}, {"ATEN_CPU_CAPABILITY": "default"}, True),  # settings of the user are kept
        ({"model": "real"}, {}, False),
        ({"policy": "real/base"}, {}, False),
        ({}, {}, False),  # a job without a model, in a grid with a real one
    ],
)
def test_jobs_of_the_embedded_model_use_the_same_kernels_on_every_cpu(
    monkeypatch: pytest.MonkeyPatch, wildcards: dict[str, str], given: dict[str, str], pinned: bool
) -> None:
    has_avx2 = "avx2" in Path("/proc/cpuinfo").read_text()
    for name in AVX2:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    models = {"demo": {"source": "embedded"}, "real": {"source": "hub"}}
    pin_embedded(SimpleNamespace(config={"models": models}, wildcards=wildcards))
    expected = (AVX2 if pinned and has_avx2 else {}) | given
    assert {name: os.environ[name] for name in AVX2 if name in os.environ} == expected
