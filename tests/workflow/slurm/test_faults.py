"""Faults of jobs, nodes, the controller and Snakemake: the same command always completes the run.

Most of the time is waiting, so faults on different nodes run at the same time.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from g2d.jobs.recover import require_no_orphans
from tests.workflow.slurm.cluster import Cluster, squeue
from tests.workflow.slurm.conftest import SlurmProject, wait_for


def job_of(project: SlurmProject, fault: str) -> str:
    """Id of the Slurm job in which a victim is running now."""
    return project.diary(fault)[-1]["job"]


def jobs_of(project: SlurmProject, fault: str) -> list[tuple[str, str]]:
    """Id and state of every Slurm job that was submitted for a victim, oldest first."""
    jobs = []
    for line in squeue("--states=all", "--sort=i", "--format=%i|%T|%k|%Z"):
        job, state, comment, folder = line.split("|")
        if comment.endswith(f"_wildcards_{fault}") and folder == str(project.root):
            jobs.append((job, state))
    return jobs


def asked_to_stop(project: SlurmProject, fault: str) -> bool:
    """Whether there is a step in which a victim's Snakemake starts, seconds before the victim, and SIGTERM reached it.

    Slurm lists a step a moment before its node can signal it.
    """
    steps = squeue("--steps", "--format=%i")
    return any(
        f"{job}.0" in steps and not subprocess.run(["scancel", "--signal=TERM", f"{job}.0"], check=False).returncode
        for job, _ in jobs_of(project, fault)
    )


def has_ended(project: SlurmProject, fault: str) -> bool:
    """Whether a victim has succeeded and its job is gone from its node."""
    running = "--states=RUNNING,COMPLETING"
    return "end" in project.events(fault) and not squeue(running, f"--jobs={job_of(project, fault)}")


FAULTS = {"cancelled": 1, "preempted": 1, "stubborn": 1, "lost": 2}


@pytest.fixture(scope="module")
def happening(
    cluster: Cluster, create_victims: Callable[..., SlurmProject], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """Faults that run at the same time, by name."""
    works = {"broken": 1, "steady": 1}
    single = create_victims("faults", gpu=[*FAULTS], cpu=["early", "memory", "time"], works=FAULTS, partition="flaky")
    failed = create_victims("failed", gpu=[*works], fails={"broken": 1}, works=works)
    orphans = {"gpu": ["finished", "running"], "works": {"finished": 1, "running": 1}, "seconds": {"finished": 10}}
    killed = create_victims("killed", settings="old", **orphans)
    with ThreadPoolExecutor() as threads:
        yield {
            "survived": threads.submit(_faults_of_single_jobs, single, cluster),
            "failed": threads.submit(_a_failure_and_then_ctrl_c, failed, [*works]),
            "killed": threads.submit(_kill_9, killed),
            "ending": threads.submit(_a_job_that_takes_long_to_end, tmp_path_factory.mktemp("ending")),
        }


@pytest.fixture(scope="module")
def survived(happening: dict[str, Future[Any]]) -> SlurmProject:
    """One run with all that can happen to single jobs: it ends with exit 0."""
    project: SlurmProject = happening["survived"].result()
    return project


def _faults_of_single_jobs(project: SlurmProject, cluster: Cluster) -> SlurmProject:
    project.fork_jobs(scripts=False)
    snakemake = project.start("--snakefile", "faults.smk")
    wait_for(lambda: asked_to_stop(project, "early"), snakemake)
    wait_for(lambda: all(project.events(fault) for fault in (*FAULTS, "time")), snakemake)
    # Two minutes are less than the profile's signal comes before the end, so it comes now.
    limited = job_of(project, "time")
    subprocess.run(["scontrol", "update", f"JobId={limited}", "TimeLimit=2"], check=True)
    second = project.run("--snakefile", "faults.smk")
    (project.root / "second.out").write_text(f"exit {second.returncode}\n{second.stdout}")
    subprocess.run(["scancel", job_of(project, "cancelled")], check=True)
    wait_for(lambda: has_ended(project, "cancelled"), snakemake)
    # A more important job takes all GPUs: the three others are preempted. One of them ignores SIGTERM.
    urgent = ["--partition=urgent", "--nodelist=gpu3,gpu4", "--nodes=2", "--gpus-per-node=2", "--time=60", "--mem=10"]
    subprocess.run(["sbatch", *urgent, "--wrap", "sleep 1"], cwd=project.root, check=True, capture_output=True)
    wait_for(lambda: cluster.start_requeued(job_of(project, "stubborn")), snakemake)
    wait_for(lambda: has_ended(project, "preempted") and has_ended(project, "stubborn"), snakemake)
    wait_for(lambda: project.events("lost").count("start") == 2, snakemake)
    node = project.diary("lost")[-1]["node"]
    cluster.lose_node(node)
    wait_for(lambda: cluster.start_requeued(job_of(project, "lost")), snakemake)
    assert snakemake.wait() == 0, project.output()
    cluster.start_node(node)
    return project


def test_a_cancelled_job_is_submitted_again(survived: SlurmProject) -> None:
    assert survived.events("cancelled") == ["start", "SIGTERM", "saved", "start", "end"]
    assert len({entry["job"] for entry in survived.diary("cancelled")}) == 2


def test_a_preempted_job_has_time_for_a_checkpoint_and_is_submitted_again(survived: SlurmProject) -> None:
    assert survived.events("preempted") == ["start", "SIGTERM", "saved", "start", "end"]
    assert len({entry["job"] for entry in survived.diary("preempted")}) == 2


def test_a_preempted_job_that_does_not_end_is_requeued_by_slurm(survived: SlurmProject) -> None:
    assert survived.events("stubborn") == ["start", "start", "end"]
    assert len({entry["job"] for entry in survived.diary("stubborn")}) == 1


def test_a_job_on_a_lost_node_runs_again_on_another(survived: SlurmProject) -> None:
    assert survived.events("lost") == ["start", "SIGTERM", "saved", "start", "start", "end"]
    before, after = survived.diary("lost")[-3:-1]
    assert before["job"] == after["job"]
    assert before["node"] != after["node"]


def test_a_job_over_its_memory_gets_more(survived: SlurmProject) -> None:
    assert survived.events("memory") == ["start", "start", "end"]


def test_a_job_over_its_time_gets_more(survived: SlurmProject) -> None:
    assert survived.events("time") == ["start", "SIGTERM", "saved", "start", "end"]


def test_a_job_that_is_asked_to_stop_before_it_has_begun_is_submitted_again(survived: SlurmProject) -> None:
    assert survived.events("early") == ["start", "end"]
    assert len({job for job, _ in jobs_of(survived, "early")}) == 2
    assert jobs_of(survived, "early")[-1][1] == "COMPLETED"


def test_only_rules_with_a_gpu_get_one(survived: SlurmProject) -> None:
    for fault in ("cancelled", "preempted", "stubborn", "lost"):
        for entry in survived.diary(fault):
            assert entry["gpu"] is not None
            assert entry["node"].startswith("gpu")
    for fault in ("early", "memory", "time"):
        for entry in survived.diary(fault):
            assert (entry["gpu"], entry["node"]) == (None, "cpu1")


def test_a_second_snakemake_is_refused(survived: SlurmProject) -> None:
    second = (survived.root / "second.out").read_text()
    assert not second.startswith("exit 0\n")
    assert "Directory cannot be locked" in second


def test_other_jobs_continue_after_a_failure_and_the_same_command_resumes_after_ctrl_c(
    happening: dict[str, Future[Any]],
) -> None:
    """A job fails while another one works; the other one's successor still runs. Ctrl-C stops the second attempt."""
    happening["failed"].result()


def _a_failure_and_then_ctrl_c(project: SlurmProject, faults: list[str]) -> None:
    targets = [f"results/{fault}-concluded.txt" for fault in faults]
    command = ("--snakefile", "faults.smk", "--retries", "0", *targets)
    project.fork_jobs()

    snakemake = project.start(*command)
    wait_for(lambda: "Error in rule evaluate" in project.output() and project.events("steady"), snakemake)
    (project.root / "diary/steady.enough").touch()
    assert snakemake.wait() == 1
    assert project.events("steady") == project.events("steady-concluded") == ["start", "end"]
    assert project.events("broken") == ["start"]
    assert project.events("broken-concluded") == []

    snakemake = project.start(*command)
    wait_for(lambda: project.events("broken") == ["start", "start"], snakemake)
    project.press_ctrl_c(snakemake)
    assert snakemake.wait() == 1
    last = project.run(*command)
    assert last.returncode == 0, last.stdout
    assert project.events("broken") == ["start", "start", "SIGTERM", "saved", "start", "end"]
    assert project.events("broken-concluded") == ["start", "end"]
    assert project.events("steady") == project.events("steady-concluded") == ["start", "end"]


def test_a_run_waits_for_jobs_that_are_ending_and_for_no_others(happening: dict[str, Future[Any]]) -> None:
    """After Ctrl-C a job may take as long as the cluster's KillWait to save a step."""
    happening["ending"].result()


def _a_job_that_takes_long_to_end(folder: Path) -> None:
    job = ["sbatch", "--parsable", "--comment=rule_train_grpo", f"--chdir={folder}", "--output=/dev/null"]
    job_id = subprocess.check_output([*job, "--wrap", "trap '' TERM; sleep 3600"], text=True).strip()
    wait_for(lambda: squeue("--states=RUNNING", f"--jobs={job_id}"))
    with pytest.raises(RuntimeError, match=rf"first: {job_id}, RUNNING, rule_train_grpo\)"):
        require_no_orphans(folder)
    subprocess.run(["scancel", job_id], check=True)
    require_no_orphans(folder)
    assert not squeue("--states=RUNNING,COMPLETING", f"--jobs={job_id}")


def test_after_kill_9_orphans_end_and_their_jobs_run_again(happening: dict[str, Future[Any]]) -> None:
    happening["killed"].result()


def _kill_9(project: SlurmProject) -> None:
    command = ("--snakefile", "faults.smk")
    project.fork_jobs()

    def recover(*arguments: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "g2d.cli", "recover", *arguments]
        return subprocess.run(call, cwd=project.root, capture_output=True, text=True, check=False)

    snakemake = project.start(*command)
    wait_for(lambda: project.events("finished") and project.events("running"), snakemake)
    assert recover("--yes").returncode == 2  # Snakemake is running
    snakemake.kill()
    snakemake.wait()
    wait_for(lambda: has_ended(project, "finished"))

    restarted = project.run(*command)  # the same command: the lock
    assert restarted.returncode != 0
    assert "cannot be locked" in restarted.stdout
    locks = project.root / ".snakemake/locks"
    shutil.copytree(locks, project.root / "kept")
    assert project.run("--unlock", *command).returncode == 0
    restarted = project.run(*command)  # without the lock: the orphan
    assert restarted.returncode != 0
    assert f"have not ended (first: {job_of(project, 'running')}, RUNNING" in restarted.stdout
    shutil.rmtree(locks, ignore_errors=True)
    (project.root / "kept").rename(locks)

    plan = recover()
    assert plan.returncode == 1
    assert f"cancel the Slurm job {job_of(project, 'running')} " in plan.stdout
    assert "results/finished.txt" in plan.stdout
    assert (project.results / "finished.txt").read_text() == "old\n"
    done = recover("--yes")
    assert done.returncode == 0, done.stderr
    assert not squeue("--states=RUNNING,PENDING,SUSPENDED", f"--jobs={job_of(project, 'running')}")

    text = (project.root / "config/paper.yaml").read_text()
    (project.root / "config/paper.yaml").write_text(text.replace("old", "new"))
    last = project.run(*command)
    assert last.returncode == 0, last.stdout
    for fault in ("finished", "running"):
        assert (project.results / f"{fault}.txt").read_text() == "new\n"
    assert recover().stdout == "nothing to recover: no jobs, no lock\n"


def test_a_controller_that_is_down_is_waited_for(
    cluster: Cluster, create_victims: Callable[..., SlurmProject], happening: dict[str, Future[Any]]
) -> None:
    """Half a minute at a submission (sbatch would give up), and a quarter while a job runs and ends."""
    wait(happening.values())
    project = create_victims(
        "outage", gpu=["steady"], after="results/prepared.txt", works={"steady": 1}, seconds={"steady": 25}
    )
    project.fork_jobs()
    snakemake = project.start("--snakefile", "faults.smk")
    wait_for(lambda: "Finished jobid" in project.output(), snakemake)
    cluster.stop("slurmctld", signal.SIGTERM)
    time.sleep(30)
    assert project.events("steady") == []
    cluster.start_controller()
    wait_for(lambda: project.events("steady"), snakemake)
    cluster.stop("slurmctld", signal.SIGTERM)
    time.sleep(15)
    cluster.start_controller()
    assert snakemake.wait() == 0, project.output()
    assert project.events("steady") == ["start", "end"]


def test_a_job_that_the_controller_forgot_is_submitted_again(
    cluster: Cluster, create_victims: Callable[..., SlurmProject], happening: dict[str, Future[Any]]
) -> None:
    wait(happening.values())
    project = create_victims("forgotten", gpu=["steady"], works={"steady": 1})
    project.fork_jobs()
    snakemake = project.start("--snakefile", "faults.smk")
    wait_for(lambda: project.events("steady"), snakemake)
    listed = f".snakemake/slurm_jobs/*/{job_of(project, 'steady')}"
    (last_listed,) = wait_for(lambda: [*project.root.glob(listed)], snakemake)
    cluster.stop("slurmctld", signal.SIGTERM)
    for file in (cluster.folder / "state").glob("job_state*"):
        file.unlink()
    cluster.start_controller()
    assert not squeue("--states=all", "--format=%i")
    ten_minutes_ago = time.time() - 600
    os.utime(last_listed, (ten_minutes_ago, ten_minutes_ago))
    assert snakemake.wait() == 0, project.output()
    assert "the controller has forgotten the job" in project.output()
    assert project.events("steady")[-2:] == ["start", "end"]
