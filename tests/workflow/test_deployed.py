"""The workflow in another project: as a module of a checkout, and as snakedeploy writes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.conftest import Project

MODULE = """
configfile: "config/config.yaml"

module g2d:
    snakefile: "{snakefile}"
    config: config

use rule * from g2d{name}
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    return Project.create(tmp_path_factory.mktemp("checkout") / "g2d", micro_config)


@pytest.fixture
def user(tmp_path: Path, micro_config: dict[str, Any]) -> Project:
    """A project with only a configuration."""
    (tmp_path / "user").mkdir()
    project = Project(tmp_path / "user")
    project.configure(micro_config)
    return project


def use(user: Project, checkout: Project, name: str = "") -> None:
    """Use the workflow of a checkout as a module."""
    (user.root / "workflow").mkdir(exist_ok=True)
    snakefile = checkout.root / "workflow/Snakefile"
    (user.root / "workflow/Snakefile").write_text(MODULE.format(snakefile=snakefile, name=name))


def test_a_module_plans_what_the_checkout_plans(checkout: Project, user: Project) -> None:
    use(user, checkout)
    assert user.planned() == checkout.planned()


def test_a_module_does_not_mix_two_whole_configurations(checkout: Project, user: Project) -> None:
    use(user, checkout)
    (user.root / "other.yaml").write_text((user.root / "config/config.yaml").read_text())
    refusal = user.refused("-n", "--configfile", "other.yaml")
    assert "other.yaml" in refusal and "config/config.yaml" in refusal
    assert user.planned("--configfile", "other.yaml", "--replace-workflow-config") == user.planned()


def test_rules_of_a_module_may_be_renamed_and_changed(checkout: Project, user: Project) -> None:
    use(user, checkout, " as g2d_*\n\nuse rule train_dpo from g2d as g2d_train_dpo with: threads: 2")
    checkouts = {f"g2d_{rule}": n for rule, n in checkout.planned("k2", "-R", "harvest").items()}
    assert user.planned("g2d_k2", "-R", "g2d_harvest") == checkouts


def test_rules_of_the_user_are_left_alone(checkout: Project, user: Project) -> None:
    """A rule of theirs may take a GPU, read any file, and keep no log."""
    use(user, checkout)
    with open(user.root / "workflow/Snakefile", "a") as file:
        file.write('rule mine:\n    input: "notes.txt", "results/notes.txt"\n    output: "mine.txt"\n')
        file.write('    resources: gpu=1\n    shell: "touch {output}"\n')
    user.results.mkdir()
    for name in ("notes.txt", "results/notes.txt"):
        (user.root / name).write_text("theirs")
    assert user.planned("mine") == {"mine": 1}
    (user.root / "mine.txt").write_text("made before")
    assert user.planned("mine") == {}


def test_jobs_of_renamed_rules_run_and_what_is_finished_stays(own_micro_grid: Project) -> None:
    snakefile = MODULE.format(snakefile="workflow/Snakefile", name=" as g2d_*")
    (own_micro_grid.root / "Snakefile").write_text(snakefile)
    assert own_micro_grid.planned() == {}
    (own_micro_grid.results / "config.yaml").unlink()
    plan = own_micro_grid.results / "plan.json"
    assert [entry["evaluations"] for entry in json.loads(plan.read_text())["entries"]] == [0]
    plan.unlink()
    assert own_micro_grid.planned() == {}  # older folders have no plan
    policy = own_micro_grid.results / "micro/seed0/dpo/g2/k4/policy.json"
    policy.unlink()
    own_micro_grid.build(str(policy.relative_to(own_micro_grid.root)))
    assert policy.exists()
    assert json.loads(policy.with_name("cost.json").read_text())["stage"] == "train_dpo"
    assert (own_micro_grid.results / "config.yaml").exists()  # `onstart` of the module has run
    assert json.loads(plan.read_text())["entries"][0]["evaluations"] > 0


def test_snakedeploy_writes_a_project_that_plans_the_same(checkout: Project, tmp_path: Path) -> None:
    """The repository on "GitHub" is a local one, for snakedeploy's git and for Snakemake."""
    pytest.importorskip("snakedeploy", reason="snakedeploy is not installed: it has no release for this Python")
    repository = checkout.copied(tmp_path / "g2d").root
    for command in ("init -q", "add .", "commit -q -m release", "tag v0.3.0"):
        identity = ["-c", "user.name=g2d", "-c", "user.email=g2d@example.org"]
        subprocess.run(["git", *identity, *command.split()], cwd=repository, check=True)
    (tmp_path / "gitconfig").write_text(f'[url "file://{repository}"]\n    insteadOf = https://github.com/owner/g2d\n')
    offline = {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    user = Project(tmp_path / "user")
    command = ["deploy-workflow", "https://github.com/owner/g2d", str(user.root), "--tag", "v0.3.0"]
    snakedeploy = Path(sys.executable).with_name("snakedeploy")
    subprocess.run([snakedeploy, *command], env=os.environ | offline, check=True)
    assert (user.root / "profiles/default/config.yaml").exists()
    done = user.snakemake("-n", "--quiet", "rules", **offline)
    assert done.returncode == 0, done.stdout
    count = re.search(r"^total +(\d+)", done.stdout, re.M)
    assert count
    assert int(count[1]) == sum(checkout.planned().values())
