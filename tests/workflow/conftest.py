"""A copy of the workflow with the micro configuration, run once for all tests that look at its results."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.models import SEED
from tests.shared import made_once
from tests.workflow import forked

REPOSITORY = Path(__file__).parents[2]
# In the environment of every run: a test looks for it in all that the runs leave.
SECRET = "hf_ThisTokenMustBeNowhere"
PARTS = ["Snakefile", "papers", "workflow", "profiles", "envs", "src"]


@dataclass(frozen=True)
class Project:
    """A checkout that a test may change, with a configuration of its own."""

    root: Path

    @classmethod
    def create(cls, root: Path, config: dict[str, Any]) -> Project:
        shutil.copytree(checkout(), root)
        project = cls(root)
        project.configure(config)
        return project

    def copied(self, root: Path) -> Project:
        """This checkout with all that it has made, somewhere else."""
        return Project(Path(shutil.copytree(self.root, root, symlinks=True)))

    def extended(self, config: dict[str, Any]) -> dict[str, int]:
        """Configure and build; what was planned."""
        self.configure(config)
        planned = self.planned()
        self.build("--quiet", "rules")
        return planned

    @property
    def results(self) -> Path:
        return self.root / "results"

    def configure(self, config: dict[str, Any]) -> None:
        (self.root / "config").mkdir(exist_ok=True)
        (self.root / "config/config.yaml").write_text(yaml.safe_dump(config))

    def snakemake(self, *arguments: str, anew: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake as a user would, with this copy of the package.

        It is forked from a process that has made its imports, unless it is to start anew.
        """
        command = ["-m", "snakemake", *arguments]
        given = {"PYTHONPATH": str(self.root / "src"), "HF_HUB_OFFLINE": "1", "HF_TOKEN": SECRET} | environment
        if not anew:
            status, printed = forked.call(command, self.root, os.environ | given)
            return subprocess.CompletedProcess(command, status, printed)
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.root,
            env=os.environ | given,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    def build(self, *arguments: str, anew: bool = False) -> str:
        done = self.snakemake("--cores", "2", *arguments, anew=anew)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def planned(self, *arguments: str) -> dict[str, int]:
        """Jobs that a dry-run would run, by rule."""
        done = self.snakemake("-n", *arguments)
        assert done.returncode == 0, done.stdout
        table = re.search(r"^job +count\n-+ +-+\n(.*?)^total", done.stdout, re.M | re.S)
        if table is None:
            assert "Nothing to be done" in done.stdout, done.stdout
            return {}
        jobs = dict(line.split() for line in table.group(1).splitlines())
        return {rule: int(count) for rule, count in jobs.items()}

    @contextmanager
    def edited(self, file: str, old: str, new: str) -> Iterator[None]:
        """Replace text in a file of the checkout for a while, leaving its time stamp as it was afterwards."""
        path = self.root / file
        before, times = path.read_text(), (path.stat().st_atime, path.stat().st_mtime)
        assert old in before
        path.write_text(before.replace(old, new))
        try:
            yield
        finally:
            path.write_text(before)
            os.utime(path, times)


def checkout() -> Path:
    """What every project begins with."""
    return made_once("checkout", _check_out)


def _check_out(root: Path) -> None:
    """The repository's files, and the package's bytecode, which would otherwise be made at each start."""
    root.mkdir()
    for part in PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, root / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, root / part)
    compileall.compile_dir(root / "src", quiet=1)


@pytest.fixture(scope="session")
def micro_config() -> dict[str, Any]:
    config = yaml.safe_load((Path(__file__).parent / "micro.yaml").read_text())
    config["models"]["micro"]["seed"] = SEED
    return config


@pytest.fixture(scope="session")
def micro_grid(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    """The finished micro grid, one for each process. Tests that run jobs in it restore what they find or only add."""
    return copy_of_micro(micro_config, tmp_path_factory.mktemp("micro") / "g2d")


@pytest.fixture
def own_micro_grid(tmp_path: Path, micro_config: dict[str, Any]) -> Project:
    """The finished micro grid, for one test that damages it: as it was made, without what other tests have added."""
    return copy_of_micro(micro_config, tmp_path / "g2d")


def copy_of_micro(config: dict[str, Any], to: Path) -> Project:
    """The finished micro grid, as it was made."""
    made = made_once("micro", lambda root: Project.create(root, config).build("--quiet", "rules"))
    return Project(Path(shutil.copytree(made, to, symlinks=True)))


def copy_of_extended(
    name: str, config: dict[str, Any], more: dict[str, Any], to: Path
) -> tuple[Project, dict[str, int]]:
    """The finished micro grid with more keys, which several files of tests look at, and the jobs that these planned."""

    def make(root: Path) -> None:
        planned = copy_of_micro(config, root).extended(config | more)
        root.with_suffix(".json").write_text(json.dumps(planned))

    made = made_once(name, make)
    project = Project(Path(shutil.copytree(made, to, symlinks=True)))
    return project, json.loads(made.with_suffix(".json").read_text())
