"""A forked call of Snakemake behaves like a start of Snakemake."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workflow import forked
from tests.workflow.conftest import REPOSITORY, Project

OF_THIS_CALL = (
    r"^\d\d:\d\d:\d\d|\(\d+ s\)$|^  (Date|Workflow ID): .*$|^Elapsed time: .*$|[Jj]obid:? \d+|\S+\.snakemake/log/\S+"
    r"|\{.*?\}"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    return Project.create(tmp_path_factory.mktemp("forked") / "g2d", micro_config)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("-n", "no-such-target"), 1),
        (("--no-such-option",), 2),
        (("--cores", "1", "--forceall", "results/problems/arithmetic.jsonl"), 0),
    ],
)
def test_a_forked_call_prints_the_words_of_a_new_process(
    project: Project, arguments: tuple[str, ...], status: int
) -> None:
    """Its words: jobs have no order, nor have options, and of the files that were updated Snakemake names some."""

    def words(anew: bool) -> set[str]:
        call = project.snakemake(*arguments, anew=anew)
        assert call.returncode == status, call.stdout
        printed = re.sub(OF_THIS_CALL, "", call.stdout, flags=re.M).split()
        return {word for word in printed if not word.startswith("results/")}

    assert words(anew=False) == words(anew=True)


PRINTS = """
import g2d, os, signal, sys, tempfile, threading
interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
print("found:", g2d.__file__, sys.argv[1:], os.environ["MARK"], tempfile.gettempdir(), interrupted, flush=True)
print("threads:", threading.active_count(), file=sys.stderr)
"""


def test_it_has_the_package_environment_and_arguments_of_its_call(project: Project, tmp_path: Path) -> None:
    (project.root / "prints.smk").write_text(f"{PRINTS}\nrule all:\n")
    arguments = ["-n", "--snakefile", "prints.smk"]
    interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for mark in ("first", "second"):
        environment = {"PYTHONPATH": str(project.root / "src"), "MARK": mark, "TMPDIR": str(tmp_path)}
        status, output = forked.call(["-m", "snakemake", *arguments], project.root, os.environ | environment)
        assert f"found: {project.root}/src/g2d/__init__.py {arguments} {mark} {tmp_path} {interrupted}\n" in output
        assert (status, "threads: 1\n" in output) == (0, True)
    assert "MARK" not in os.environ


def test_a_killed_call_has_the_status_of_its_signal(project: Project) -> None:
    (project.root / "killed.smk").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert project.snakemake("-n", "--snakefile", "killed.smk").returncode == -signal.SIGKILL
    assert project.snakemake("--version").returncode == 0


def test_a_call_imports_the_changed_package_of_its_project(project: Project) -> None:
    (project.root / "words.smk").write_text("import g2d.plain\nprint('words:', g2d.plain.__doc__)\nrule all:\n")
    assert "words: Printing" in project.snakemake("-n", "--snakefile", "words.smk").stdout
    with project.edited("src/g2d/plain.py", '"""Printing', '"""Changed. Printing'):
        assert "words: Changed. Printing" in project.snakemake("-n", "--snakefile", "words.smk").stdout


def test_a_call_without_a_package_has_the_installed_one(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("import g2d, sys\nprint(g2d.__file__, sys.path[0])\nrule all:\n")
    status, output = forked.call(["-m", "snakemake", "-n"], tmp_path, os.environ | {"PYTHONPATH": ""})
    assert (status, f"{REPOSITORY}/src/g2d/__init__.py {tmp_path}\n" in output) == (0, True), output
    assert sys.path[0] != str(tmp_path)
