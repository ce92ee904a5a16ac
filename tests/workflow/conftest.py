"""A copy of the workflow with the micro configuration, run once for all tests that look at its results."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import mock

import pytest
import yaml
import yte

from g2d.jobs.environment import AVX2
from tests.models import SEED
from tests.shared import made_once
from tests.workflow import accesses, forked

REPOSITORY = Path(__file__).parents[2]
# Every run has this token in its environment; test_security.py looks for it in all files.
SECRET = "hf_ThisTokenMustBeNowhere"
PARTS = ["Snakefile", "workflow", "profiles", "envs", "src"]


@dataclass(frozen=True)
class Project:
    """A checkout that a test may change, and its configuration.

    Args:
        unlimited: whether its processes use all CPU kernels, not only the tests' AVX2. Snakemake is never forked then.
    """

    root: Path
    unlimited: bool = False

    @classmethod
    def create(cls, root: Path, config: dict[str, Any], *, unlimited: bool = False) -> Self:
        shutil.copytree(checkout(), root)
        project = cls(root, unlimited)
        project.configure(config)
        return project

    def copied(self, root: Path) -> Self:
        """Copy this checkout and its results."""
        return type(self)(Path(shutil.copytree(self.root, root, symlinks=True)), self.unlimited)

    def extended(self, config: dict[str, Any]) -> dict[str, int]:
        """Configure and build; return the planned jobs, by rule."""
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
        """Run Snakemake as a user would, with this copy of the package; forked (`forked.py`) unless `anew`."""
        command = ["-m", "snakemake", *arguments]
        variables = {"HF_HUB_OFFLINE": "1", "HF_TOKEN": SECRET, accesses.VARIABLE: str(self.root / "accesses.txt")}
        variables |= environment
        if anew or self.unlimited:
            return subprocess.run(**self.process(*command, **variables), check=False)
        return self._forked(*command, **variables)

    def g2d(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `g2d`, forked."""
        return self._forked("-m", "g2d.cli", *arguments)

    def _forked(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        status, printed = forked.call([*command], self.root, self.environment(**variables))
        return subprocess.CompletedProcess(command, status, printed)

    def environment(self, **variables: str) -> dict[str, str]:
        """Environment in which Python imports this copy of the package."""
        inherited = {name: value for name, value in os.environ.items() if not (self.unlimited and name in AVX2)}
        return inherited | {"PYTHONPATH": str(self.root / "src")} | variables

    def process(self, *command: str, **variables: str) -> dict[str, Any]:
        """Arguments of `subprocess` for a new Python in this folder, with one stream of output."""
        return {
            "args": [sys.executable, *command],
            "cwd": self.root,
            "env": self.environment(**variables),
            "text": True,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }

    def script(self, script: Path, *arguments: str) -> str:
        """Run a script in this folder, forked; return its output."""
        done = self._forked(str(script), *arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def planned_jobs(self, *arguments: str) -> list[dict[str, Any]]:
        """Jobs of a dry-run, each with what it is made from (`planned_jobs.py`)."""
        printed = self.script(Path(__file__).with_name("planned_jobs.py"), *arguments)
        jobs: list[dict[str, Any]] = json.loads(printed[printed.index("[{") :])
        return jobs

    def refused(self, *arguments: str, anew: bool = False, **environment: str) -> str:
        """Run Snakemake, require that it fails without a stack, and return its output."""
        done = self.snakemake(*arguments, anew=anew, **environment)
        assert done.returncode != 0, done.stdout
        assert not re.search(r'^Traceback|^  File "', done.stdout, re.M), done.stdout
        return done.stdout

    def build(self, *arguments: str) -> str:
        done = self.snakemake("--cores", "2", *arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def planned(self, *arguments: str) -> dict[str, int]:
        """Jobs of a dry-run, by rule."""
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
        """Replace text in a file of the checkout, then restore the file and its time stamp."""
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
    """Return the folder that every project is a copy of."""
    return made_once("checkout", _check_out)


def _check_out(root: Path) -> None:
    """Copy the repository's files and compile the package once for all projects."""
    root.mkdir()
    for part in PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, root / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, root / part)
    compileall.compile_dir(root / "src", quiet=1)


def read_profile(name: str) -> dict[str, Any]:
    """Return a profile as Snakemake reads it, without the variables that its code sets."""
    with open(REPOSITORY / f"profiles/{name}/config.yaml", encoding="utf-8") as file, mock.patch.dict(os.environ):
        profile: dict[str, Any] = yte.process_yaml(file)
        return profile


@pytest.fixture(scope="session")
def micro_config() -> dict[str, Any]:
    config = yaml.safe_load((Path(__file__).parent / "micro.yaml").read_text())
    config["calibration"]["seed"] = SEED
    return config


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    """A checkout with the micro configuration and without results."""
    return Project.create(tmp_path_factory.mktemp("project") / "g2d", micro_config)


@pytest.fixture(scope="session")
def micro_grid(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    """The finished micro grid, shared by the tests of a process: they only add results, or restore what they change."""
    return copy_of_micro(micro_config, tmp_path_factory.mktemp("micro") / "g2d")


@pytest.fixture
def own_micro_grid(tmp_path: Path, micro_config: dict[str, Any]) -> Project:
    """A new copy of the finished micro grid, for a test that damages it."""
    return copy_of_micro(micro_config, tmp_path / "g2d")


def copy_of_micro(config: dict[str, Any], to: Path) -> Project:
    """Copy the finished micro grid."""
    made = made_once("micro", lambda root: Project.create(root, config).build("--quiet", "rules"))
    return Project(Path(shutil.copytree(made, to, symlinks=True)))


def copy_of_extended(
    name: str,
    config: dict[str, Any],
    more: dict[str, Any],
    to: Path,
    *,
    add: Callable[[Path], object] = lambda root: None,
) -> tuple[Project, dict[str, int]]:
    """Copy the finished micro grid with more keys and the files that `add` writes; also return the planned jobs."""

    def make(root: Path) -> None:
        project = copy_of_micro(config, root)
        add(root)
        planned = project.extended(config | more)
        root.with_suffix(".json").write_text(json.dumps(planned))

    made = made_once(name, make)
    project = Project(Path(shutil.copytree(made, to, symlinks=True)))
    return project, json.loads(made.with_suffix(".json").read_text())
