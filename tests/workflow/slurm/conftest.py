"""A cluster for the session, and workflows that run on it through the shipped profile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflow import forked
from tests.workflow.as_python import DOOR_OF_SCRIPTS, LIGHT
from tests.workflow.conftest import Project
from tests.workflow.slurm.cluster import Cluster, NoClusterError

HERE = Path(__file__).parent

# The first Snakemake of a job and the script are forked. The Snakemake that submits, and a job's step, which Slurm
# signals, start Python.
FORKED = """
import os, sys
if {scripts} or "SLURM_STEP_ID" not in os.environ:
    sys.executable = {python!r}
os.environ[{variable!r}] = {door!r}
"""


def wait_for(condition: Callable[[], Any], running: subprocess.Popen[Any] | None = None) -> Any:
    """Wait until the condition is true and return its value; fail if the process ends before that."""
    while not (value := condition()):
        assert running is None or running.poll() is None, "Snakemake ended before this happened"
        time.sleep(0.2)
    return value


@dataclass(frozen=True)
class SlurmProject(Project):
    """A checkout whose Snakemake submits to the test's cluster."""

    def start(self, *arguments: str, log: str = "snakemake.out") -> subprocess.Popen[bytes]:
        """`snakemake --profile slurm`, in the background."""
        with open(self.root / log, "ab") as file:
            return subprocess.Popen(
                # env: where the tests run behind a shell's `&`, SIGINT is ignored, and so it would be below
                ["env", "--default-signal=INT", sys.executable, "-m", "snakemake", "--profile", "slurm", *arguments],
                cwd=self.root,
                env=os.environ | {"PYTHONPATH": str(self.root / "src"), "HF_HUB_OFFLINE": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the whole group of a terminal
            )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`snakemake --profile slurm` until it ends, forked."""
        return self.snakemake("--profile", "slurm", *arguments)

    def fork_jobs(self, imports: str = LIGHT, scripts: bool = True) -> None:
        """Fork later jobs, with these imports made; without scripts if Slurm is to measure or to kill them."""
        text = FORKED.format(python=forked.python(), scripts=scripts, variable=DOOR_OF_SCRIPTS, door=imports)
        (self.root / "src/sitecustomize.py").write_text(text)

    def watch_status(self, log: str) -> subprocess.Popen[bytes]:
        """What `g2d status --watch` knows, as JSON, in the background, a look a second."""
        with open(self.root / log, "wb") as file:
            return subprocess.Popen(
                ["env", "--default-signal=INT", sys.executable, str(Path(__file__).with_name("watch.py"))],
                cwd=self.root,
                env=os.environ | {"PYTHONPATH": str(self.root / "src")},
                stdout=file,
                start_new_session=True,
            )

    @staticmethod
    def press_ctrl_c(snakemake: subprocess.Popen[bytes]) -> None:
        os.killpg(snakemake.pid, signal.SIGINT)

    def output(self, log: str = "snakemake.out") -> str:
        return (self.root / log).read_text()

    def edit_profile(self, changes: dict[str, str]) -> None:
        """Change values of the copied profile; each must be there."""
        path = self.root / "profiles/slurm/config.yaml"
        text = path.read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)

    def diary(self, fault: str) -> list[dict[str, Any]]:
        """Events that a victim recorded."""
        path = self.root / f"diary/{fault}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self, fault: str) -> list[str]:
        return [entry["event"] for entry in self.diary(fault)]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.up(owner=os.getpid())
    except NoClusterError as reason:
        pytest.skip(f"no Slurm: {reason}")
    yield cluster
    cluster.down()


@pytest.fixture(scope="session")
def create_project(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, dict[str, Any]], SlurmProject]]:
    """Make a checkout on the cluster; what is still running in it at the end is ended."""
    made = []

    def create(name: str, config: dict[str, Any]) -> SlurmProject:
        project = SlurmProject.create(tmp_path_factory.mktemp(name) / "g2d", config)
        (project.root / "slurm").symlink_to("profiles/slurm")
        (project.root / "config/paper.yaml").write_text(yaml.safe_dump(config))
        changes = {"before-status-checks: 5": "before-status-checks: 1", "per-second: 0.2": "per-second: 1"}
        # Threads: already two on two busy cores mostly wait for each other, for five times the CPU time of one.
        changes |= {"?4 if stage in OFFLINE_STAGES else 8": "1"}
        project.edit_profile(changes)
        made.append(project)
        return project

    yield create
    for project in made:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = (entry / "cwd").resolve() == project.root.resolve()
            except OSError:
                continue
            if ours:
                os.kill(int(entry.name), signal.SIGKILL)


@pytest.fixture(scope="session")
def create_victims(create_project: Callable[..., SlurmProject]) -> Callable[..., SlurmProject]:
    """Make a project of small jobs to which something is to happen, with the shipped profile and less memory.

    Its time limits and its signal are the shipped ones: Slurm may send the signal a minute early, so a limit of minutes
    would hit a job that has not begun.
    """

    def create(name: str, partition: str = "gpu", **config: Any) -> SlurmProject:
        project = create_project(
            name, {"cpu": [], "gpu": [], "after": [], "works": {}, "fails": {}, "seconds": {}} | config
        )
        for file in ("faults.smk", "victim.py"):
            shutil.copy2(HERE / file, project.root / file)
        project.edit_profile(
            {
                "gpu_partition: gpu": f"gpu_partition: {partition}",
                "mem_mb: 8000 * attempt": "mem_mb: 600 * attempt",
            }
        )
        return project

    return create
