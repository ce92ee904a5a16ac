"""`snakemake --profile slurm -n`, without Slurm."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

import pytest

from g2d.regimes.catalogue import REGIMES
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
    for stage, jobs in (("train_grpo", 60), ("evaluate", 204)):
        assert re.search(rf"^{stage} +{jobs} +[\d.]+  guess$", done.stdout, re.M), done.stdout
    *_, total, last = done.stdout.rstrip().splitlines()
    assert re.match(r"total +406 +[\d.]+$", total)
    assert last.startswith("This was a dry-run")


def test_another_configuration_replaces_the_papers(project: Project) -> None:
    done = project.snakemake("--profile", "slurm", "-n", "--quiet", "rules", "--configfile", "config/config.yaml")
    assert re.search("^embedded_model +1$", done.stdout, re.M), done.stdout
    assert "pretrained_model" not in done.stdout
    assert "GPU-hours" not in done.stdout  # the demonstration's model is no 7B


def test_every_rule_that_may_hold_a_gpu_is_in_the_profiles() -> None:
    text = "\n".join(path.read_text() for path in (REPOSITORY / "workflow/rules").glob("*.smk"))
    # Made in loops.
    on_gpu = {f"train_{name}" for name in REGIMES}
    for block in re.split(r"^(?=(?:use )?rule )", text, flags=re.M):
        if match := re.match(r"rule (\w+):", block):
            on_gpu |= {match[1]} if re.search(r"^        gpu=", block, re.M) else set()
        elif match := re.match(r"use rule (\w+) as (\w+) with:", block):
            on_gpu |= {match[2]} if match[1] in on_gpu else set()
    profile = read_profile("slurm")
    assert set(profile["set-resources"]) == set(profile["set-threads"]) == on_gpu
    threads = read_profile("workstation")["set-threads"]
    assert set(threads) == on_gpu
    assert len(set(threads.values())) == 1
    assert 1 <= threads["train_grpo"] <= len(os.sched_getaffinity(0))  # all of them if there is one card


def test_one_machine_with_gpus_runs_the_same_jobs_with_its_cores_shared(project: Project) -> None:
    profile = ("--profile", "profiles/workstation", "--configfile", "config/config.yaml")
    assert project.planned(*profile) == project.planned("--configfile", "config/config.yaml")
