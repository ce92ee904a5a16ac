"""Commands that messages print: each is taken from the message, runs, and ends the trouble."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from typing import Any

import pytest

import g2d
from g2d.jobs.files import sha256
from tests.workflow.conftest import Project

ANSWERS = "results/micro/seed0/dpo/g2/k2/eval/arithmetic.parquet"
Damage = Callable[[Project, dict[str, Any]], object]


def missing(grid: Project, config: dict[str, Any]) -> None:
    (grid.root / ANSWERS).unlink()


def damaged(grid: Project, config: dict[str, Any]) -> None:
    file = grid.root / ANSWERS
    file.write_bytes(file.read_bytes()[:-1])


def unrecorded(grid: Project, config: dict[str, Any]) -> None:
    shutil.rmtree(grid.root / ".snakemake/metadata")
    grid.configure(config | {"dpo": config["dpo"] | {"learning_rate": 1.0e-3}})


def unfinished(grid: Project, config: dict[str, Any]) -> None:
    """Leave a grid whose last job has not begun."""
    shutil.rmtree(grid.root / "results/report")
    shutil.rmtree(grid.root / "results/attempts/build_report", ignore_errors=True)
    for file in (grid.root / "results/attempts").glob("build_report*"):
        file.unlink()


def with_a_verifier(grid: Project, config: dict[str, Any]) -> None:
    (grid.root / "mine.py").write_text("def judge(problem, completion):\n    return problem['answer'] in completion\n")
    grid.configure(config | {"verifier": {"source": "python", "file": "mine.py"}})


def two_damaged(grid: Project, config: dict[str, Any]) -> None:
    for name in ("arithmetic", "word-problems"):
        file = grid.root / f"results/micro/base/eval/{name}.parquet"
        file.write_bytes(file.read_bytes() + b"more")


def locked(grid: Project, config: dict[str, Any]) -> None:
    """Leave the lock of a Snakemake that was killed."""
    locks = grid.root / ".snakemake/locks"
    locks.mkdir(exist_ok=True)
    (locks / "0.output.lock").write_text(f"{ANSWERS}\n")


CASES = {
    "a missing result": (missing, "g2d status", "to make them again: (.*)$"),
    "a missing file": (missing, "g2d check-results", "to make it again: (.*)$"),
    "a damaged file": (damaged, "g2d check-results", "have it made again: (.*)$"),
    "results without a record": (unrecorded, "snakemake -n", "Run `(.*)` once, "),
    "jobs to go": (unfinished, "g2d status", "; to go on: (.*)$"),
    "a lock": (locked, "g2d recover", "on this or another host: (.*)$"),
}


@pytest.mark.parametrize(("damage", "asked", "printed"), CASES.values(), ids=CASES)
def test_a_printed_command_ends_the_trouble(
    own_micro_grid: Project, micro_config: dict[str, Any], damage: Damage, asked: str, printed: str
) -> None:
    before = sha256(own_micro_grid.root / ANSWERS)
    damage(own_micro_grid, micro_config)
    _, output = run(own_micro_grid, asked)
    [command] = re.findall(printed, output, re.M)
    status, repaired = run(own_micro_grid, command)
    assert status == 0, repaired
    _, output = run(own_micro_grid, asked)
    assert not re.search(printed, output, re.M), output
    assert sha256(own_micro_grid.root / ANSWERS) == before


CHECK_RESULTS = "more: (g2d check-results) names all"
SHOWN = {
    "what a plan does not load": (with_a_verifier, "snakemake -n", "(g2d config check .*)` also loads", 0, ": valid"),
    "changed results": (two_damaged, "snakemake -c1 -R make_tables", CHECK_RESULTS, 1, "word-problems.parquet: not"),
}


@pytest.mark.parametrize(("prepare", "asked", "printed", "status", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_printed_command_shows_what_it_promises(
    own_micro_grid: Project,
    micro_config: dict[str, Any],
    prepare: Damage,
    asked: str,
    printed: str,
    status: int,
    shown: str,
) -> None:
    prepare(own_micro_grid, micro_config)
    _, output = run(own_micro_grid, asked)
    command = next(iter(re.findall(printed, output, re.M)), None)
    assert command, output
    done = run(own_micro_grid, command)
    assert done[0] == status, done
    assert shown in done[1]


def test_the_command_in_the_warning_of_missing_results_runs(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    missing(own_micro_grid, micro_config)
    with pytest.warns(UserWarning, match="is computed without") as warned:
        g2d.open(own_micro_grid.results).build("main")
    [command] = re.findall("`(g2d status .*)` shows", str(warned[0].message))
    status, output = run(own_micro_grid, command)
    assert status == 0
    assert ANSWERS in output


def run(grid: Project, command: str) -> tuple[int, str]:
    program, *arguments = shlex.split(command)
    programs = {"snakemake": grid.snakemake, "g2d": grid.g2d}
    done = programs[program](*arguments)
    return done.returncode, done.stdout
