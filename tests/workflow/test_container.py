"""Jobs in a container have packages of the image and code of the checkout; finished jobs do not run again.

`apptainer` is a stand-in that logs its arguments and runs the command without a container. `make test-container`
builds and runs the image.
"""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.workflow.conftest import Project

STAND_IN = """#!/bin/bash
if [ "$1" = --version ]; then echo "apptainer version 1.3.4"; exit; fi
printf '%q ' "$@" >> {calls}; echo >> {calls}
exec bash -c "${{@: -1}}"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Log of the stand-in, one line per call."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin/apptainer"
    stand_in.write_text(STAND_IN.format(calls=tmp_path / "calls"))
    stand_in.chmod(0o755)
    path = f"{stand_in.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    return tmp_path / "calls"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "g2d.sif").touch()
    return tmp_path / "g2d.sif"


def test_a_job_has_the_image_and_code_of_the_checkout_and_runs_once(project: Project, calls: Path, image: Path) -> None:
    """Files made without a container are finished with any container, and the reverse."""
    other, cache = image.with_name("other.sif"), image.with_name("cache")
    other.touch()
    cache.mkdir()
    within = ("--sdm", "apptainer")
    made = {
        "results/problems/arithmetic.jsonl": (),
        "results/problems/word-problems.jsonl": (*within, "--apptainer-args=--nv"),
    }
    for file, options in made.items():
        done = project.snakemake("--cores", "1", *options, "--", file, G2D_CONTAINER=str(image), HF_HOME=str(cache))
        assert done.returncode == 0, done.stdout
    (call,) = map(shlex.split, calls.read_text().splitlines())
    assert call[0] == "exec" and str(image) in call and "--nv" in call
    bound = {value for option, value in itertools.pairwise(call) if option == "--bind"}
    assert bound >= {str(project.root), str(cache)}
    for options, name in (((), ""), (within, image), (within, other), (within, "docker://example.org/g2d")):
        again = project.snakemake("-n", *options, "--", *made, G2D_CONTAINER=str(name))
        assert "Nothing to be done" in again.stdout, again.stdout


@pytest.mark.parametrize(
    ("method", "environment", "message"),
    [
        (("conda", "apptainer"), {"G2D_CONTAINER": "{image}"}, "--sdm conda apptainer: "),
        (("apptainer",), {}, "G2D_CONTAINER"),
        (("apptainer",), {"G2D_CONTAINER": "no.sif"}, "{root}/no.sif"),
        (("apptainer",), {"G2D_CONTAINER": "{image}", "HF_HOME": "/no/such"}, "HF_HOME: "),
    ],
)
def test_a_mistake_is_one_error(
    project: Project, calls: Path, image: Path, method: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    environment = {name: value.format(image=image) for name, value in environment.items()}
    assert message.format(root=project.root) in project.refused("-n", "--sdm", *method, **environment)
