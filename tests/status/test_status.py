"""`g2d status`: folders made by the package's own writers, jobs that really run and are really killed, hostile logs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from g2d.checks.load import load
from g2d.cli import main
from g2d.grid.grid import Grid
from g2d.jobs.attempts import BEAT_S, SILENT_S, JobAttempt, Process, Status, attempt_file, log_of
from g2d.jobs.cost import Cost, Progress, write_cost
from g2d.jobs.files import write_json, write_text
from g2d.jobs.orphans import this_machine
from g2d.jobs.snakemake_jobs import PlannedJob, read_jobs, write_jobs
from g2d.policies import PolicyRecord, write_policy
from g2d.status.command import screen, span
from g2d.status.states import Folder, JobState, Snapshot, State, job_states
from tests.configs import MINIMAL
from tests.jobs import stage_script

TRAINING = "demo/seed0/grpo/g2/k2"
ELSEWHERE = Process(17, "elsewhere", None)
CONFIG = MINIMAL | {"seeds": [0], "warmup": {"steps": [0, 2, 4], "horizon": 4}, "baselines": {"grpo_group_sizes": [2]}}


def begin(results: Path, config: dict[str, Any] = CONFIG) -> list[PlannedJob]:
    """Write what a run writes when it starts: its configuration and, here, its jobs on a device."""
    grid = Grid(load(config))
    grid.config.save(results / "config.yaml")
    jobs = [planned("calibrate", f"{model}/calibration", "rollouts.parquet") for model in config["models"]]
    for policy in grid.trained:
        jobs.append(planned(f"train_{policy.method}", policy.folder, "policy.json"))
    for harvest in grid.harvests:
        jobs.append(planned("harvest_rollouts", harvest.folder, "rollouts.parquet"))
    write_jobs(results, jobs)
    return jobs


def planned(rule: str, folder: str, output: str) -> PlannedJob:
    model, _, place = folder.partition("/")
    wildcards = {"model": model} | re.fullmatch(r".*?(?:seed(?P<seed>.*)/.*/g(?P<g>.*)/k(?P<k>.*))?", place).groupdict()  # type: ignore[union-attr]
    done = (f"results/{folder}/{output}", f"results/{folder}/cost.json")
    return PlannedJob(rule, {"variant": ""} | wildcards, done)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder in which a run has begun."""
    folder = tmp_path / "results"
    begin(folder)
    return folder


def cost(job: str, stage: str, seconds: float, device: str = "cpu") -> Cost:
    return Cost(job, stage, seconds, seconds, 1, device, seconds, 0, 10**9)


ELSEWHERE = Process(1, "elsewhere", None)


def attempted(
    results: Path,
    status: Status,
    folder: str = TRAINING,
    *,
    stage: str = "train_grpo",
    started: float = 100.0,
    seconds: float = 60.0,
    heard: float | None = None,
    device: str = "cpu",
    process: Process = ELSEWHERE,
    **more: Any,
) -> Path:
    """Record an attempt that began `started` seconds ago, took `seconds` and was last heard of `heard` seconds ago."""
    now = time.time()
    bill = cost(f"results/{folder}/cost", stage, seconds, device)
    updated = now - (started - seconds if heard is None else heard)
    attempt = JobAttempt(status, bill, "node7", now - started, updated, process, **more)
    log = results / f"logs/{stage}/{folder.replace('grpo/', '')}.log"
    file = attempt_file(log).with_name(
        f"{log.stem}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now - started))}-node7-1.json"
    )
    write_json(file, asdict(attempt))
    return file


def done(results: Path, folder: str = TRAINING) -> None:
    for name in ("policy.json", "cost.json"):
        write_text(results / folder / name, "{}")


def state_of(results: Path, folder: str = TRAINING) -> tuple[JobState, str]:
    """Return the state of a job, and its line on the screen."""
    snapshot = Folder(results).look()
    [state] = [state for state in snapshot.states if state.job.name == f"results/{folder}/cost"]
    lines = [line for line in screen(snapshot, 500, 500).splitlines() if folder in line]
    return state, lines[0].strip() if lines else ""


# ------------------------------------------------------------------------------------------------------------- states


def test_a_job_waits_then_runs_then_has_finished(results: Path) -> None:
    waiting, _ = state_of(results)
    assert waiting.state == "waiting"
    attempted(results, "running", heard=5, progress=Progress(1, 2, 0), process=Process(17, "elsewhere", "4711"))
    running, line = state_of(results)
    assert (running.state, running.position) == ("running", (1, 2))
    assert line.startswith(f"train_grpo {TRAINING}: step 1 of 2, for 2 min; node7, Slurm job 4711, heard of ")
    done(results)
    attempted(results, "ok", started=99)
    finished, line = state_of(results)
    assert (finished.state, line) == ("finished", "")


def test_an_evaluation_is_named_by_its_policy_and_benchmark(tmp_path: Path) -> None:
    results = tmp_path / "results"
    jobs = begin(results)
    answers = "results/demo/base/eval/gsm8k"
    evaluation = PlannedJob("evaluate", {"policy": "demo/base"}, (f"{answers}.parquet", f"{answers}.cost.json"))
    write_jobs(results, [*jobs, evaluation])
    bill = cost(f"{answers}.cost", "evaluate", 60, "cpu")
    attempt = JobAttempt("running", bill, "node7", time.time() - 60, time.time(), ELSEWHERE)
    write_json(results / "attempts/evaluate/demo/base/gsm8k.json", asdict(attempt))
    assert "  evaluate demo/base/eval/gsm8k: for 1 min; node7" in screen(Folder(results).look(), 500, 500)


def test_a_failed_job_shows_its_last_line_until_a_retry(results: Path) -> None:
    attempted(results, "failed", progress=Progress(1, 2, 0))
    write_text(results / f"logs/train_grpo/{TRAINING.replace('grpo/', '')}.log", "step\nValueError: no GPU\n\n")
    failed, line = state_of(results)
    assert (failed.state, len(failed.attempts), failed.position) == ("failed", 1, None)
    assert line.endswith(": ValueError: no GPU")
    attempted(results, "running", started=30, heard=1)
    again, line = state_of(results)
    assert (again.state, len(again.attempts)) == ("running", 2)
    assert "attempt 2" in line
    attempted(results, "ok", started=20)
    done(results)
    assert state_of(results)[0].state == "finished"


def test_the_reason_of_a_failed_job_is_shown_not_the_path_below_it(results: Path) -> None:
    log = f"results/logs/train_grpo/{TRAINING.replace('grpo/', '')}.log"
    fails = stage_script.command("raise ValueError('no pairs')", rule="train_grpo", log=log)
    subprocess.run(fails, cwd=results.parent, capture_output=True, check=False)
    attempted(results, "failed")
    _, line = state_of(results)
    assert line.endswith(": train_grpo: no pairs")


def test_the_last_line_of_a_killed_job_is_not_its_error(results: Path) -> None:
    attempted(results, "killed")
    write_text(results / f"logs/train_grpo/{TRAINING.replace('grpo/', '')}.log", "step 3\n")
    _, line = state_of(results)
    assert line.endswith(", last logged: step 3")


def test_a_stopped_training_names_the_step_it_has_kept(results: Path) -> None:
    attempted(results, "stopped", progress=Progress(37, 100, 0))
    (results / TRAINING / "work/step-30").mkdir(parents=True)
    (results / TRAINING / "work/step-9").mkdir()
    stopped, line = state_of(results)
    assert (stopped.state, stopped.position) == ("stopped", (30, 100))
    assert "kept up to step 30" in line


def test_silence_elsewhere_is_called_silence_and_a_later_attempt_counts(results: Path) -> None:
    attempted(results, "running", started=9000, heard=SILENT_S + 5, process=Process(17, "elsewhere", None))
    silent, line = state_of(results)
    assert silent.state == "silent"
    assert "no sign of life since" in line
    attempted(results, "running", started=50, heard=BEAT_S, process=Process(18, "elsewhere", None))
    assert state_of(results)[0].state == "running"


def test_a_reused_process_id_is_not_the_dead_process(results: Path) -> None:
    attempted(results, "running", started=10**9, heard=1, process=Process(os.getpid(), this_machine(), None))
    assert state_of(results)[0].state == "killed"


def test_results_without_files_are_missing_and_files_without_records_are_results(results: Path) -> None:
    attempted(results, "ok", heard=SILENT_S + 5)
    missing, line = state_of(results)
    assert missing.state == "missing"
    assert "its files are not there; to make them again: snakemake --cores all results/demo/seed0/grpo/g2/k2/" in line
    done(results, "demo/seed0/grpo/g2/k4")
    assert state_of(results, "demo/seed0/grpo/g2/k4")[0].state == "finished"


@pytest.mark.parametrize("process", [ELSEWHERE, Process(os.getpid(), this_machine(), None)])
def test_a_job_between_its_final_record_and_its_costs_is_running(results: Path, process: Process) -> None:
    attempted(results, "ok", started=5, seconds=4, heard=1, process=process)
    assert state_of(results)[0].state == "running"
    done(results)
    assert state_of(results)[0].state == "finished"


def test_a_job_that_ends_between_two_looks_at_it_has_its_final_state(results: Path) -> None:
    """Its record is read before its process is looked up."""
    dead = Process(os.getpid(), this_machine(), None)  # this process is younger
    attempted(results, "running", started=10**9, heard=1, process=dead)
    records = Folder(results).records.read()
    attempted(results, "stopped", started=10**9, heard=1, process=dead)
    [training] = [job for job in read_jobs(results) if job.name == f"results/{TRAINING}/cost"]
    [state] = job_states(results, [training], records)
    assert state.state == "stopped"


def test_a_policy_without_its_cost_is_no_result(results: Path) -> None:
    """The cost is written last, so a job that was killed before it has not finished."""
    attempted(results, "killed")
    write_text(results / TRAINING / "policy.json", "{}")
    assert state_of(results)[0].state == "killed"


ATTEMPT = """
import sys, time
from pathlib import Path
from g2d.jobs.attempts import attempt_file, recorded
from g2d.jobs.cost import Meter

job, log = sys.argv[1:]
with recorded(attempt_file(log), Meter(job, "train_grpo")):
    print("begun", flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def process(results: Path) -> Iterator[subprocess.Popen[str]]:
    """A job that runs."""
    log = results / f"logs/train_grpo/{TRAINING.replace('grpo/', '')}.log"
    command = [sys.executable, "-c", ATTEMPT, f"results/{TRAINING}/cost", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_job_that_is_killed_here_is_known_to_be_dead_at_once(results: Path, process: subprocess.Popen[str]) -> None:
    running, _ = state_of(results)
    assert running.state == "running"
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert state_of(results)[0].state == "killed"  # a zombie
    process.wait()
    assert state_of(results)[0].state == "killed"


# --------------------------------------------------------------------------------------------------------------- text


HOSTILE = {
    "escapes": b"\x1b[2J\x1b[1;1Hall jobs have finished\x1b]0;owned\x07",
    "no text": bytes(range(128, 256)),
    "endless": b"x" * 100_000,
    "a progress bar": b"10%\r50%\rOut of memory",
    "direction": "\u202eevil".encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_log_stays_text(results: Path, name: str) -> None:
    attempted(results, "failed")
    log = results / f"logs/train_grpo/{TRAINING.replace('grpo/', '')}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(HOSTILE[name])
    snapshot = Folder(results).look()
    text = screen(snapshot, 80, 24)
    assert all(line.isprintable() and len(line) <= 80 for line in text.splitlines())
    [trouble] = snapshot.of("failed")
    assert snapshot.words(trouble).isprintable()
    if name == "a progress bar":
        assert snapshot.words(trouble) == "Out of memory"


def test_a_broken_record_is_named_and_ignored(results: Path) -> None:
    write_text(results / "attempts/evaluate/x.json", '{"status": "\x1b[2J"')
    done(results)
    snapshot = Folder(results).look()
    assert snapshot.counts["finished"] == 1
    assert "x.json" in screen(snapshot, 300, 24).splitlines()[-1]
    assert "\x1b" not in screen(snapshot, 300, 24)
    [reason] = snapshot.unreadable
    assert "x.json" in reason


def crowded(results: Path) -> Snapshot:
    for k in (2, 4):
        attempted(results, "failed", f"demo/seed0/grpo/g2/k{k}")
        attempted(results, "running", f"demo/seed0/dpo/g2/k{k}", stage="train_dpo", heard=3)
    attempted(results, "failed", "demo/seed0/dpo/g0/k0", stage="train_dpo")
    return Folder(results).look()


def test_the_last_trouble_comes_first(results: Path) -> None:
    for k, ago in ((2, 50.0), (4, 10.0)):
        attempted(results, "failed", f"demo/seed0/grpo/g2/k{k}", heard=ago)
    attempted(results, "stopped", "demo/seed0/dpo/g0/k0", stage="train_dpo", heard=1)
    trouble = Folder(results).look().of("failed", "stopped")
    assert [state.job.wildcards["k"] for state in trouble] == ["4", "2", "0"]


def test_a_small_screen_tells_that_jobs_are_not_shown(results: Path) -> None:
    snapshot = crowded(results)
    for width, height in product((20, 80, 200), (4, 12, 24, 60)):
        lines = screen(snapshot, width, height).splitlines()
        assert len(lines) <= height and max(map(len, lines)) <= width
    text = screen(snapshot, 200, 60)
    assert "running: 2\n" in text
    assert "in trouble: 3\n" in text
    assert "not shown" in screen(snapshot, 200, 12)


def test_lengths_of_time() -> None:
    words = {-5: "0 s", 59: "59 s", 60: "1 min", 3599: "1 h 0 min", 11_100: "3 h 5 min", 180_000: "2 d 2 h"}
    assert {seconds: span(seconds) for seconds in words} == words


# ------------------------------------------------------------------------------------------------------ what it costs


GPU = CONFIG | {
    "models": {"demo": {"source": "hub", "id": "a/b", "revision": "0" * 40}},
    "warmup": {"steps": [0, 100, 300], "horizon": 300, "prompts_per_step": 8, "schedule": "chain"},
}


def test_gpu_hours_to_go_follow_from_what_was_measured(results: Path) -> None:
    begin(results, GPU)
    config = load(GPU)
    first, second = "demo/seed0/grpo/g2/k100", "demo/seed0/grpo/g2/k300"
    attempted(results, "ok", first, seconds=7200, started=9000, device="A100")
    write_policy(
        results / first / "policy.json",
        PolicyRecord("p", "demo", "grpo", "m0", 0, k=100, settings={"warmup": config.warmup.at(2, 100).params()}),
    )
    write_cost(results / first / "cost.json", cost(f"results/{first}/cost", "train_grpo", 7200, "A100"))
    attempted(results, "failed", second, seconds=360, started=1500, device="A100")
    attempted(results, "running", second, seconds=60, started=61, device="unknown", progress=Progress(150, 300, 100))
    snapshot = Folder(results).look()
    assert snapshot.device_hours == pytest.approx(2.1 + 1 / 60)
    [training] = [line for line in snapshot.to_go if line.stage == "train_grpo"]
    assert training.hours == pytest.approx(2 * 200 / 100)  # two hours took 100 steps, and the job has 200
    assert training.source == "measured here (demo, n=1)"
    text = screen(snapshot, 300, 40)
    assert "step 150 of 300" in text
    assert "to go: about " in text and "GPU-hours" in text


def test_before_anything_is_measured_hours_are_guessed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card has 300 steps in two jobs: 16 completions of 192 tokens from a model of 7.6 billion, in four passes."""
    begin(results, GPU)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    to_go = {line.stage: line.hours for line in Folder(results).look().to_go}
    step = 192 * (0.07 + 7.6e9 * 2 / 3e12) + 4 * 0.5 + 1
    assert to_go["train_grpo"] == pytest.approx((2 * 30 + 300 * step) / 3600)
    assert None not in to_go.values()


def test_without_a_gpu_hours_are_of_a_core(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(results, GPU)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    attempted(results, "ok", "demo/seed0/grpo/g2/k100", seconds=7200, started=9000, device="cpu")
    text = screen(Folder(results).look(), 300, 40)
    assert "CPU hours" in text and "GPU-hours" not in text


def test_without_a_job_that_runs_the_screen_says_so(results: Path) -> None:
    attempted(results, "ok", "demo/seed0/grpo/g2/k2")
    done(results)
    last = screen(Folder(results).look(), 400, 40).splitlines()[-1]
    assert "nothing runs; " in last
    assert "to go on: snakemake --cores all" in last
    attempted(results, "running", "demo/seed0/grpo/g2/k4", heard=1)
    assert "nothing runs" not in screen(Folder(results).look(), 200, 40)


def test_an_attempt_names_the_log_of_its_job() -> None:
    folder = Path("results/attempts")
    for log in ("results/logs/make_tables.log", "results/logs/evaluate/attempts/m-1.5/seed0/dpo/g2/k5/a.b.log"):
        assert log_of(attempt_file(log), folder) == Path(log)
    assert log_of(folder / "x.json", folder) is None


# ------------------------------------------------------------------------------------------------------------ command


def test_the_command_prints_the_screen_and_every_state_is_documented(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempted(results, "failed")
    attempted(results, "running", "demo/seed0/grpo/g2/k4", heard=1)
    assert main(["status", str(results)]) == 0
    text = capsys.readouterr().out
    assert f"0 of {len(read_jobs(results))} jobs finished" in text
    assert "running: 1\n" in text and "in trouble: 1\n" in text
    documented = (Path(__file__).parents[2] / "docs/status.md").read_text()
    for state in get_args(State):
        assert f"| `{state}` |" in documented, state


def test_a_reader_that_closes_the_pipe_is_no_error(results: Path) -> None:
    """`g2d status | head -0`."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "g2d.cli", "status", str(results)]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_folder_of_a_run_will_do(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(results.parent)]) == 0
    assert "jobs finished" in capsys.readouterr().out


def test_the_lock_of_a_folder_of_linked_results_is_beside_the_link(results: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / ".snakemake/locks").mkdir(parents=True)
    (run / ".snakemake/locks/0.output.lock").touch()
    (run / "results").symlink_to(results)
    assert Folder(run / "results").look().is_locked


def test_no_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(tmp_path / "results")]) == 2
    assert main(["status", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    no_folder, not_begun = printed.err.splitlines()
    assert no_folder.startswith(f"g2d status: no results folder at {tmp_path}/results: ")
    assert not_begun == f"g2d status: {tmp_path}/config.yaml is not there: no run has begun in this folder"


def test_a_watch_looks_again_and_ends_with_ctrl_c(results: Path) -> None:
    # Whoever runs the tests in the background may ignore Ctrl-C, and child processes inherit that.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "g2d.cli", "status", str(results)]
    with subprocess.Popen(
        [*command, "--watch", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        while "nothing runs" not in (line := watch.stdout.readline()):
            assert "in trouble" not in line
        attempted(results, "failed")
        while "in trouble: 1" not in watch.stdout.readline():
            pass
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate()
    assert (watch.returncode, errors) == (0, "")


def test_a_watch_sees_what_a_job_does_with_its_record(results: Path) -> None:
    folder = Folder(results)
    file = attempted(results, "running", heard=1)
    assert folder.look().counts["running"] == 1
    record = json.loads(file.read_text())
    write_json(file, record | {"status": "failed"})
    assert folder.look().counts["failed"] == 1
    file.unlink()
    assert folder.look().counts["waiting"] == len(folder.jobs)
    before = len(folder.jobs)
    begin(results, CONFIG | {"seeds": [0, 1]})
    os.utime(results / "config.yaml", (1, 1))
    assert len(folder.look().states) > before
