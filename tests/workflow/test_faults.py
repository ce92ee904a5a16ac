"""Faults on one machine: killed processes, a full disk, truncated files. Nothing is lost or silently stale."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from g2d.analysis.calibration import LEVEL_COLUMNS
from g2d.jobs.cost import merge_costs, read_cost
from g2d.jobs.files import sha256
from g2d.jobs.orphans import RUN, name_of
from g2d.policies import load_base, read_policy
from g2d.policies.record import require_own_weights
from g2d.problems import read_problems
from g2d.regimes.common.checkpoints import require_intact
from g2d.regimes.common.stopping import work_folder
from g2d.rollouts.pairs import read_pairs
from g2d.rollouts.rollout import read_rollouts
from g2d.status.states import Folder, JobState
from g2d.tables.frames import read_table
from tests.attempts import read_attempts
from tests.workflow.conftest import Project, copy_of_micro

DPO = "results/micro/seed0/dpo/g2/k2"


@pytest.fixture
def grid(own_micro_grid: Project) -> Project:
    return own_micro_grid


def with_a_disk(project: Project, script: str) -> str:
    """Run a shell script in the project with private mounts; `$SNAKEMAKE` is the command of a user."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode:
        pytest.skip("no private mounts here (unshare --user --mount)")
    return subprocess.run(
        [*unshare, "bash", "-c", script],
        cwd=project.root,
        env=project.environment(SNAKEMAKE=f"{sys.executable} -m snakemake --cores 1 --nocolor"),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    ).stdout


# ------------------------------------------------------------------------------------------------------------- memory


def test_a_training_that_runs_out_of_memory_ends_with_smaller_passes(grid: Project, micro_grid: Project) -> None:
    trainer = "src/g2d/regimes/offline/pair_trainer.py"
    first_line = '        weights = inputs.pop("weights")\n'
    limit = '        if len(inputs["input_ids"]) > 4:\n            raise torch.OutOfMemoryError("CUDA out of memory")\n'
    shutil.rmtree(grid.root / DPO)
    with grid.edited(trainer, first_line, limit + first_line):
        grid.build("--quiet", "rules", "--", f"{DPO}/policy.json")
    log = (grid.results / "logs/train_dpo/micro/seed0/dpo/g2/k2.log").read_text()
    assert "out of memory: per_device_batch_size 4 -> 2; gradient steps stay the same" in log
    assert n_steps(grid) == n_steps(micro_grid) > 0
    assert not (grid.root / DPO / "work").exists()


def n_steps(project: Project) -> int:
    return len((project.root / DPO / "metrics.jsonl").read_text().splitlines())


# --------------------------------------------------------------------------------------------------------------- disk


def test_a_full_disk_is_named_and_the_same_command_resumes(grid: Project, micro_grid: Project) -> None:
    shutil.rmtree(grid.root / DPO)
    (grid.root / "results").rename(grid.root / "before")
    output = with_a_disk(
        grid,
        f"""
        mkdir results; mount -t tmpfs -o size=1g none results; cp -a before/. results
        mount -o remount,size=$(($(df -k --output=used results | tail -1) + 300))k results
        $SNAKEMAKE {DPO}/policy.json && exit 1
        echo left behind: $(cd {DPO}; ls; cd work; ls)
        cp -a results after
        """,
    )
    message = f"train_dpo: {DPO}/work: cannot be written (No space left on device): make room or permit writing there"
    assert message in output
    assert "left behind: work trainer\n" in output

    (grid.root / "results").rmdir()
    (grid.root / "after").rename(grid.root / "results")
    grid.build("--quiet", "rules", "--", f"{DPO}/policy.json")
    adapter = f"{DPO}/adapter/adapter_model.safetensors"
    assert (grid.root / adapter).read_bytes() == (micro_grid.root / adapter).read_bytes()
    assert not (grid.root / DPO / "work").exists()


def test_a_read_only_results_folder_is_named(grid: Project) -> None:
    shutil.rmtree(grid.root / DPO)
    output = with_a_disk(
        grid,
        f"""
        mount --bind results results; mount -o remount,bind,ro results
        $SNAKEMAKE {DPO}/policy.json && exit 1; true
        """,
    )
    assert "results/jobs.json: cannot be written (Read-only file system)" in output


# -------------------------------------------------------------------------------------------------------------- files


def test_files_that_were_cut_short_are_named_and_made_again(grid: Project, micro_grid: Project) -> None:
    seed = "results/micro/seed0"
    damaged = {  # the file, and what is made from it
        f"{seed}/harvest/g2/k2/rollouts.parquet": f"{seed}/harvest/g2/k2/pairs.jsonl",
        f"{seed}/harvest/g0/k0/pairs.jsonl": f"{seed}/dpo/g0/k0/policy.json",
        f"{seed}/grpo/g2/k2/checkpoint/optimizer.pt": f"{seed}/grpo/g2/k4/policy.json",
        f"{seed}/grpo/g4/k4/adapter/adapter_model.safetensors": f"{seed}/grpo/g4/k4/eval/arithmetic.parquet",
    }
    for file in damaged:
        os.truncate(grid.root / file, (grid.root / file).stat().st_size * 2 // 3)
    done = grid.snakemake(
        "--cores", "2", "--keep-going", "--quiet", "rules", "-R", *damaged.values(), "--", *damaged.values()
    )
    assert done.returncode == 1
    for file, made in damaged.items():
        again = re.findall(rf": {file}: not the file that .* (\S+)$", done.stdout, re.M)[-1]
        assert Path(file).is_relative_to(again)
        assert not (grid.root / made).exists()

    file = f"{seed}/harvest/g0/k0/pairs.jsonl"
    (grid.root / file).unlink()
    grid.build("--quiet", "rules", "--", f"{seed}/dpo/g0/k0/policy.json")
    for name in (file, f"{seed}/dpo/g0/k0/adapter/adapter_model.safetensors"):
        assert (grid.root / name).read_bytes() == (micro_grid.root / name).read_bytes()


def own_weights(adapter: Path) -> None:
    require_own_weights(replace(read_policy(adapter.parent.parent / "policy.json"), adapter=str(adapter.parent)))


def base_weights(file: Path) -> None:
    load_base(replace(read_policy(file.parent.parent / "policy.json"), base=str(file.parent)))


READERS: dict[str, Callable[[Path], Any]] = {
    "base/policy.json": read_policy,
    "base/model/model.safetensors": base_weights,
    "calibration/levels.csv": partial(read_table, columns=LEVEL_COLUMNS),
    "calibration/train.jsonl": read_problems,
    "seed0/grpo/g2/k2/checkpoint/rng_state.pth": lambda file: require_intact(file.parent),
    "seed0/grpo/g2/k2/adapter/adapter_model.safetensors": own_weights,
    "seed0/grpo/g2/k2/cost.json": read_cost,
    "seed0/harvest/g2/k2/rollouts.parquet": read_rollouts,
    "seed0/harvest/g2/k2/pairs.jsonl": read_pairs,
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_names_a_file_that_was_cut_short(micro_grid: Project, tmp_path: Path, name: str) -> None:
    original = micro_grid.results / "micro" / name
    folder = original.parents[1] if original.parent.name in ("adapter", "model", "checkpoint") else original.parent
    copied = Path(shutil.copytree(folder, tmp_path / "copy")) / original.relative_to(folder)
    READERS[name](copied)
    size = copied.stat().st_size
    for length in (size - 2, size // 2, 0):
        os.truncate(copied, length)
        with pytest.raises(ValueError, match="delete") as refusal:
            READERS[name](copied)
        assert str(copied) in str(refusal.value) or str(copied.parent) in str(refusal.value)


# ------------------------------------------------------------------------------------------------------------- killed


K24 = "results/micro/seed0/grpo/g2/k24"


@dataclass
class Interrupted:
    """A training of 24 steps whose Snakemake was killed, and whose trainer was stopped while it started and trained."""

    grid: Project
    straight: Project  # the same training without an interruption
    while_it_ran: JobState
    after_the_kill: JobState
    steps_after_the_kill: int
    refusal: subprocess.CompletedProcess[str]  # of the same command after the kill
    output: str  # of the Snakemake that finished


@pytest.fixture(scope="module")
def interrupted(micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    """kill -9 of Snakemake, then the same command; SIGTERM to the trainer, before and after it has begun to train."""
    grid = copy_of_micro(micro_config, tmp_path_factory.mktemp("interrupted") / "g2d")
    config = copy.deepcopy(micro_config) | {"ablations": {}}
    config["warmup"] |= {"steps": [0, 24], "horizon": 30}
    grid.configure(config)
    straight = grid.copied(tmp_path_factory.mktemp("straight") / "g2d")
    target = ["--retries", "2", f"{K24}/policy.json"]
    straight.build("--quiet", "rules", *target)

    grid.configure(config | {"checkpoints": {"every_minutes": 1e-6}})
    work = grid.root / K24 / "work"
    killed = start(grid, *target)
    wait_for(lambda: steps(work) >= 3, killed)
    while_it_ran = status_of(grid, K24)
    killed.kill()
    killed.wait()
    after_the_kill = once_it_has_ended(grid, K24)
    steps_after_the_kill = steps(work)
    refusal = grid.snakemake("--cores", "1", *target)
    assert grid.snakemake("--unlock").returncode == 0

    (grid.root / "src/sitecustomize.py").write_text(HELD_AT_ITS_START)
    preempted = start(grid, *target)
    starting = grid.root / "starting"
    wait_for(lambda: starting.exists() and bool(starting.read_text()), preempted)
    os.kill(int(starting.read_text()), signal.SIGTERM)
    log = grid.root / "results/logs/train_grpo/micro/seed0/g2/k24.log"
    wait_for(lambda: log.exists() and "goes on from step" in log.read_text(), preempted)
    reached = steps(work)
    assert reached >= 3
    wait_for(lambda: steps(work) > reached, preempted)
    [trainer] = processes(grid, "train.py")
    os.kill(trainer, signal.SIGTERM)
    output, _ = preempted.communicate()
    assert preempted.returncode == 0, output
    return Interrupted(grid, straight, while_it_ran, after_the_kill, steps_after_the_kill, refusal, output)


@pytest.mark.parametrize("name", ["adapter/adapter_model.safetensors", "rollouts.parquet", "checkpoint/optimizer.pt"])
def test_an_interrupted_training_ends_with_the_same_bits(interrupted: Interrupted, name: str) -> None:
    made = interrupted.grid.root / K24 / name
    assert made.read_bytes() == (interrupted.straight.root / K24 / name).read_bytes()


def test_an_interrupted_training_logs_each_step_once(interrupted: Interrupted) -> None:
    assert log_of(interrupted.grid.root / K24) == log_of(interrupted.straight.root / K24)


def test_an_interrupted_training_pays_for_all_its_attempts(interrupted: Interrupted) -> None:
    cost = read_cost(interrupted.grid.root / K24 / "cost.json").own
    attempts = read_attempts(interrupted.grid.root / "results/attempts/train_grpo/micro/seed0/g2")
    *stopped, finished = [attempt for attempt in attempts if attempt.cost.job == cost.job]
    assert len(stopped) == 2
    assert finished.carried is not None
    assert cost == merge_costs(finished.carried, finished.cost)
    assert 0 < finished.carried.wall_s <= sum(attempt.cost.wall_s for attempt in stopped)


def test_an_interrupted_training_pays_for_each_token_once(interrupted: Interrupted) -> None:
    cost = read_cost(interrupted.grid.root / K24 / "cost.json").own
    straight = read_cost(interrupted.straight.root / K24 / "cost.json").own
    assert cost.tokens_generated == straight.tokens_generated


def test_an_interrupted_training_leaves_no_process_and_no_work_folder(interrupted: Interrupted) -> None:
    assert processes(interrupted.grid, "train.py") == []
    assert not (interrupted.grid.root / K24 / "work").exists()


def test_the_status_of_an_interrupted_training_is_true_at_each_time(interrupted: Interrupted) -> None:
    assert interrupted.while_it_ran.state == "running"
    assert interrupted.after_the_kill.state == "stopped"
    assert interrupted.after_the_kill.position == (interrupted.steps_after_the_kill, 24)
    assert status_of(interrupted.grid, K24).state == "finished"


def test_the_lock_of_a_killed_snakemake_is_named(interrupted: Interrupted) -> None:
    assert interrupted.refusal.returncode == 1
    assert "--unlock" in interrupted.refusal.stdout


def test_a_stopped_training_says_how_to_go_on(interrupted: Interrupted) -> None:
    assert "train_grpo: stopped by SIGTERM at step" in interrupted.output
    assert "of 24, which is kept: run the same command again to go on from there" in interrupted.output


def test_ctrl_c_prints_how_to_go_on_and_no_error_per_job(grid: Project, micro_config: dict[str, Any]) -> None:
    config = copy.deepcopy(micro_config) | {"ablations": {}, "checkpoints": {"every_minutes": 1e-6}}
    config["warmup"] |= {"steps": [0, 24], "horizon": 30}
    grid.configure(config)
    folder = "results/micro/seed0/grpo/g2/k24"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # children of a background job would ignore it
    interrupted = start(grid, f"{folder}/policy.json", start_new_session=True)
    signal.signal(signal.SIGINT, before)
    wait_for(lambda: steps(grid.root / folder / "work") >= 1, interrupted)
    os.killpg(interrupted.pid, signal.SIGINT)
    output, _ = interrupted.communicate()
    assert interrupted.returncode == 1
    _, said, after = output.partition("Terminating processes on user request")
    assert said, output
    assert "Finished jobs stay: type the same command to go on." in after
    assert "Traceback" not in after
    assert "Error in rule" not in after


def test_ctrl_c_at_the_start_of_a_job_prints_no_stack(tmp_path: Path, micro_config: dict[str, Any]) -> None:
    project = Project.create(tmp_path / "g2d", micro_config)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # children of a background job would ignore it
    interrupted = start(project, "k2", start_new_session=True)
    signal.signal(signal.SIGINT, before)
    assert interrupted.stdout
    for line in interrupted.stdout:
        if "Load the problems" in line:
            break
    # A signal before that, while Snakemake prepares the job by asyncio, is lost.
    wait_for(lambda: bool(psutil.Process(interrupted.pid).children()), interrupted)
    os.killpg(interrupted.pid, signal.SIGINT)
    output = interrupted.stdout.read()
    assert interrupted.wait() == 1
    assert "Traceback" not in output
    assert "Error" not in output
    assert output.splitlines()[-1] == "Finished jobs stay: type the same command to go on."


def status_of(project: Project, folder: str) -> JobState:
    """State of a training in `g2d status`."""
    return next(state for state in Folder(project.results).look().states if state.job.name == f"{folder}/cost")


def once_it_has_ended(project: Project, folder: str) -> JobState:
    """The same, when the job of a killed Snakemake has noticed."""
    state = status_of(project, folder)
    while state.state == "running":
        time.sleep(0.1)
        state = status_of(project, folder)
    return state


@pytest.mark.parametrize("share", [False, True])
def test_a_job_that_is_still_importing_ends_with_its_snakemake(
    grid: Project, micro_config: dict[str, Any], share: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that begins while another Snakemake has a training in its folder is refused by name."""
    grid.configure(micro_config | {"share_imports": share})
    shutil.rmtree(grid.root / DPO)
    killed = start(grid, f"{DPO}/policy.json")
    wait_for(lambda: bool(processes(grid, "train.py")), killed)
    killed.kill()
    output, _ = killed.communicate()  # once nobody is left who has its terminal
    assert "the Snakemake that started this job is gone" in output
    for path in (grid.root / DPO).rglob("*"):
        assert not path.is_file()

    assert grid.snakemake("--unlock").returncode == 0
    monkeypatch.setenv(RUN, name_of(os.getpid()))
    with work_folder(grid.root / DPO / "work"):  # like a training of another running Snakemake
        refused = grid.snakemake("--cores", "1", f"{DPO}/policy.json").stdout
    assert f"\ntrain_dpo: {DPO}/work: process {os.getpid()} on {os.uname().nodename} works there for another" in refused


def test_recover_keeps_results_that_a_killed_run_had_not_begun(
    grid: Project, micro_config: dict[str, Any], tmp_path: Path
) -> None:
    """The copy has other time stamps and a changed setting makes its results stale; time stamps must not matter."""
    copied = Project(Path(shutil.copytree(grid.root, tmp_path / "copy", copy_function=shutil.copyfile)))
    before = recorded(copied)
    copied.configure(micro_config | {"dpo": micro_config["dpo"] | {"learning_rate": 1e-4}})
    killed = start(copied)
    wait_for(lambda: any((copied.root / ".snakemake/locks").glob("*.output.lock")), killed)
    killed.kill()
    killed.communicate()
    assert copied.g2d("recover", "--yes").returncode == 0
    lost = before.keys() - recorded(copied).keys()
    assert len({before[file] for file in lost}) <= 1, "more than the first job's"
    assert not (copied.results / ".trash").exists()


def recorded(project: Project) -> dict[Path, Path]:
    """The files of results whose content is the recorded one, with the list that records it."""
    lists = {}
    for listed in (project.results / "digests").rglob("*.sha256"):
        for line in listed.read_text().splitlines():
            digest, name = line.split("  ")
            file = project.root / name
            if file.exists() and sha256(file) == digest:
                lists[file] = listed
    return lists


# Python imports this before anything else: the first trainer that starts with it never gets any further.
HELD_AT_ITS_START = """
import os, sys, time
if sys.orig_argv[-1].endswith("train.py") and not os.path.exists("starting"):
    with open("starting", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(3600)
"""


def start(project: Project, *arguments: str, start_new_session: bool = False) -> subprocess.Popen[str]:
    """Snakemake in the background."""
    command = ("-m", "snakemake", "--cores", "1", "--nocolor", *arguments)
    return subprocess.Popen(**project.process(*command, HF_HUB_OFFLINE="1"), start_new_session=start_new_session)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait while the process runs."""
    while not condition():
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.02)


def steps(work: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(folder.name.removeprefix("step-")) for folder in work.glob("step-*")), default=0)


def processes(project: Project, script: str) -> list[int]:
    """Processes that run a script of the project."""
    prefix = str(project.root / ".snakemake/scripts").encode()
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if len(arguments) > 1 and arguments[1].startswith(prefix) and arguments[1].endswith(script.encode()):
            pids.append(int(entry.name))
    return pids


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a training, without the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 25))
    assert any(row["grad_norm"] > 0 for row in rows)
    return [row | {"step_time": None} for row in rows]


def test_two_runs_started_at_once_leave_one_result(tmp_path: Path, micro_config: dict[str, Any]) -> None:
    """Either the second is refused by Snakemake's lock, or it comes late enough to find everything done."""
    project = Project.create(tmp_path / "g2d", micro_config)
    target = "results/problems/arithmetic.leakage.json"
    first, second = start(project, target), start(project, target)
    output = first.communicate()[0] + second.communicate()[0]
    assert first.returncode == 0 or second.returncode == 0, output
    both_succeeded = first.returncode == second.returncode
    assert both_succeeded or "cannot be locked" in output or "Unable to lock" in output, output
    assert project.planned(target) == {}
    assert not (project.root / ".snakemake/locks").exists() or not list((project.root / ".snakemake/locks").iterdir())
