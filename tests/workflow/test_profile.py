"""`snakemake --profile slurm -n` and the profile's stand-in for sacct, without Slurm."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from snakemake.iocontainers import InputFiles
from snakemake.resources import Resource

from g2d.forecast.limits import LEAST
from g2d.grid.versions import GPU_STAGES
from g2d.jobs import environment
from tests.jobs.test_gpus import nvidia_smi
from tests.workflow.conftest import REPOSITORY, Project, read_profile


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    project = Project.create(tmp_path_factory.mktemp("profile") / "g2d", micro_config)
    (project.root / "slurm").symlink_to((REPOSITORY / "slurm").readlink())
    shutil.copy2(REPOSITORY / "config/paper.yaml", project.root / "config/paper.yaml")
    return project


def test_the_dry_run_lists_gpu_hours_of_the_papers_grid(project: Project) -> None:
    done = project.snakemake("--profile", "slurm", "-n", "--quiet", "rules")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^train_dpo +80$", done.stdout, re.M)
    for stage, jobs in (("train_grpo", 60), ("evaluate", 102)):
        assert re.search(rf"^{stage} +{jobs} +[\d.]+  guess$", done.stdout, re.M), done.stdout
    *_, total, last = done.stdout.rstrip().splitlines()
    assert re.match(r"total +304 +[\d.]+$", total)
    assert last.startswith("This was a dry-run")


def minutes_of(jobs: list[dict[str, Any]], rule: str) -> dict[str, int]:
    """Time limits of the jobs of a rule, by output."""
    return {job["output"][0]: job["minutes"] for job in jobs if job["rule"] == rule}


def test_requested_hours_of_the_papers_grid_are_at_most_five_times_the_forecast(project: Project) -> None:
    dry_run = project.snakemake("--profile", "slurm", "-n", "--quiet", "rules").stdout
    [forecast] = re.findall(r"^total +304 +([\d.]+)$", dry_run, re.M)
    jobs = project.planned_jobs("--profile", "slurm")
    requested = sum(job["minutes"] for job in jobs if job["gpus"]) / 60
    assert 3 < requested / float(forecast) < 5
    chain = minutes_of(jobs, "train_grpo")
    grpo = "results/qwen2.5-7b-instruct/seed0/grpo/g2"
    at_300 = chain[f"{grpo}/k300/checkpoint"]
    assert at_300 == chain[f"{grpo}/k150/checkpoint"]  # both run 150 steps
    assert 1.5 < chain[f"{grpo}/k1000/checkpoint"] / at_300 < 2  # 300 steps, after those to K=700


def test_a_time_limit_of_the_user_replaces_the_forecasts(project: Project) -> None:
    mine = ["--configfile", "config/config.yaml", "--set-resources", "train_dpo:runtime=77"]
    jobs = project.planned_jobs("--profile", "slurm", *mine)
    assert set(minutes_of(jobs, "train_dpo").values()) == {77}
    assert set(minutes_of(jobs, "train_grpo").values()) == {LEAST}


def test_another_configuration_replaces_the_papers(project: Project) -> None:
    done = project.snakemake("--profile", "slurm", "-n", "--quiet", "rules", "--configfile", "config/config.yaml")
    assert re.search("^embedded_model +1$", done.stdout, re.M), done.stdout
    assert "pretrained_model" not in done.stdout
    assert "GPU-hours" not in done.stdout  # the demonstration's model is no 7B


def test_every_rule_that_may_hold_a_gpu_is_in_the_profiles() -> None:
    text = "\n".join(path.read_text() for path in (REPOSITORY / "workflow/rules").glob("*.smk"))
    on_gpu: set[str] = set()
    for block in re.split(r"^(?=(?:use )?rule )", text, flags=re.M):
        rule = re.match(r"rule (\w+):", block)
        derived = re.match(r"use rule (\w+) as (\w+) with:", block)
        if rule and re.search(r"^        gpu=", block, re.M):
            on_gpu.add(rule[1])
        if derived and derived[1] in on_gpu:
            on_gpu.add(derived[2])
    assert on_gpu == set(GPU_STAGES)
    profile = read_profile("slurm")
    assert set(profile["set-resources"]) == set(profile["set-threads"]) == on_gpu
    threads = read_profile("workstation")["set-threads"]
    assert set(threads) == on_gpu
    assert len(set(threads.values())) == 1
    assert 1 <= threads["train_grpo"] <= len(os.sched_getaffinity(0))  # all of them if there is one card


@pytest.mark.parametrize(("judged", "model"), [([], "h100"), (["rollouts.parquet"], "")])
def test_a_harvest_that_is_judged_again_names_no_type_of_gpu(judged: list[str], model: str) -> None:
    """It may need none, and Slurm refuses 0 of a type."""
    expression = read_profile("slurm")["set-resources"]["harvest_rollouts"]["gpu_model"]
    resource = Resource.from_cli_expression("gpu_model", expression)
    given = {"wildcards": {}, "input": InputFiles(fromdict={"judged": judged}), "attempt": 1, "threads": 1}
    assert resource.evaluate(**given, rulename="harvest_rollouts", async_run=None).value == model


@pytest.mark.parametrize(("visible", "gpus"), [("0,2", 2), ("", 10_000), ("-1", 10_000), ("GPU-a", 1)])
def test_a_machine_runs_as_many_gpu_jobs_as_it_has_cards(
    visible: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a card the cores limit them."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read_profile("default")["resources"] == [f"gpu={gpus}"]


def test_wsl2_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(glob, "glob", lambda pattern: ["/dev/dxg"] if pattern == "/dev/dxg" else [])
    assert read_profile("default")["resources"] == ["gpu=1"]


def test_a_workstation_counts_cards_that_only_nvidia_smi_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(environment, "DRIVER", tmp_path / "none")
    monkeypatch.setattr(environment, "DEVICES", tmp_path / "none")
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setenv("PATH", str(nvidia_smi(tmp_path / "bin", *map(str, range(cores)))))
    assert set(read_profile("workstation")["set-threads"].values()) == {1}


def test_cards_of_the_machine_that_submits_do_not_limit_a_cluster(project: Project) -> None:
    """Local resources limit no submitted job. A limit in --profile would not do: that of profiles/default wins."""
    asks = "from snakemake.cli import parse_args; print(parse_args(['--profile', 'slurm'])[1].set_resource_scopes)"
    done = subprocess.run(**project.process("-c", asks, CUDA_VISIBLE_DEVICES="0"), check=False)
    assert done.stdout.splitlines()[-1] == "{'gpu': 'local'}", done.stdout


def test_without_its_stand_ins_the_profile_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch and sacct of the cluster would answer, and the plugin would wait forever."""
    read_profile("slurm")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="profiles/slurm/bin"):
        read_profile("slurm")


def test_one_machine_with_gpus_runs_the_same_jobs_with_its_cores_shared(project: Project) -> None:
    profile = ("--profile", "profiles/workstation", "--configfile", "config/config.yaml")
    assert project.planned(*profile) == project.planned("--configfile", "config/config.yaml")


class StandIn:
    """The stand-in for sacct in a folder of its own, with a `squeue` that lists `jobs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        squeue = folder / "bin/squeue"
        squeue.parent.mkdir()
        squeue.write_text('#!/bin/sh\nif [ -f jobs ]; then cat jobs; else echo "Invalid job id" >&2; exit 1; fi\n')
        squeue.chmod(0o755)

    def lists(self, *jobs: str) -> None:
        (self.folder / "jobs").write_text("\n".join([*jobs, ""]))

    def answers_with(self, *arguments: str) -> tuple[int, list[str]]:
        stand_in = REPOSITORY / "profiles/slurm/without-slurmdbd/sacct"
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        done = subprocess.run(
            [stand_in, *arguments],
            cwd=self.folder,
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.stderr
        return done.returncode, done.stdout.split()

    def states(self, run: str = "run-1") -> tuple[int, list[str]]:
        """Answer the question of snakemake-executor-plugin-slurm."""
        return self.answers_with(*f"-X --parsable2 --clusters all --noheader --endtime now --name {run}".split())

    def pass_minutes(self, minutes: int) -> None:
        for file in (self.folder / ".snakemake/slurm_jobs").glob("*/*"):
            past = file.stat().st_mtime - 60 * minutes
            os.utime(file, (past, past))


def test_a_job_that_the_controller_forgot_has_failed_after_ten_minutes(tmp_path: Path) -> None:
    """The plugin waits for a job that is not listed, without end."""
    slurm = StandIn(tmp_path)
    slurm.lists("7|RUNNING", "8|PENDING")
    assert slurm.states() == (0, ["7|RUNNING", "8|PENDING"])
    slurm.pass_minutes(60)
    assert slurm.states() == (0, ["7|RUNNING", "8|PENDING"])
    slurm.lists("8|RUNNING")
    assert slurm.states() == (0, ["8|RUNNING"])
    slurm.pass_minutes(8)
    assert slurm.states() == (0, ["8|RUNNING"])
    slurm.pass_minutes(3)
    assert slurm.states() == (0, ["8|RUNNING", "7|FAILED"])
    slurm.lists()
    assert slurm.states("run-2") == (0, [])  # another run


def test_a_controller_that_does_not_answer_has_forgotten_nothing(tmp_path: Path) -> None:
    slurm = StandIn(tmp_path)
    slurm.lists("7|RUNNING")
    slurm.states()
    slurm.pass_minutes(60)
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\nexit 1\n")
    assert slurm.states() == (1, [])


def test_a_forgotten_job_has_one_reason(tmp_path: Path) -> None:
    slurm = StandIn(tmp_path)
    reason = ["--format=Reason", "--noheader"]
    assert slurm.answers_with("-j", "7.0", *reason) == (0, ["the", "controller", "has", "forgotten", "the", "job"])
    assert slurm.answers_with("-j", "7.1", *reason) == (0, [])
    assert slurm.answers_with("-j", "7.2", *reason) == (0, [])
