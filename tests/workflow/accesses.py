"""File accesses below `results/` of the jobs of a grid, and those that its rules do not declare.

An audit hook of Python sees them, so not files that only native code opens (weights, some Parquet files).
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.workflow.conftest import Project

VARIABLE = "G2D_TESTS_ACCESSES"  # file that processes append to: log of the job, "r" or "w", path
# Every job writes digests and a record of its attempt, which outlives a failure. It compares its inputs with recorded
# digests.
OF_EVERY_JOB = {"w": ("results/attempts/", "results/digests/"), "r": ("results/digests/",)}
NO_INPUTS = {"build_report": r"results/plan\.json"}  # by rule; no job makes them
KEPT = {"evaluate": "results/answers/", "sample_answers": "results/answers/"}  # by rule; it outlives the outputs


def trace(file: str) -> None:
    """Append the accesses of this process and its forks to a file."""
    results = f"{os.getcwd()}/results/"  # noqa: PTH109
    seen: set[tuple[str, str]] = set()
    log = ""

    def note(mode: str, path: Any) -> None:
        nonlocal log
        if isinstance(path, int):
            return
        whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        if not whole.startswith(results) or (mode, whole) in seen:
            return
        relative = whole.removeprefix(results)
        if mode == "w" and relative.startswith("logs/") and relative != "logs/shared_imports.log":
            log = f"results/{relative}"  # a job opens its own first
            seen.clear()
        seen.add((mode, whole))
        if log:
            with open(descriptor, "a", closefd=False) as lines:
                lines.write(f"{log}\t{mode}\tresults/{relative}\n")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            note("w" if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else "r", arguments[0])
        elif event in ("os.rename", "os.link", "os.symlink"):
            note("w", arguments[1])

    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.addaudithook(hook)


def undeclared(project: Project) -> list[tuple[str, str, str]]:
    """Return accesses that no rule declares: rule, "r" or "w", and path. Folders do not count, nor temporary files."""
    jobs = {job["log"][0]: job for job in project.planned_jobs() if job["log"]}
    accesses = defaultdict[tuple[str, str], set[str]](set)
    for line in (project.root / "accesses.txt").read_text().splitlines():
        log, mode, path = line.split("\t")
        if path == log and mode == "w":  # the job begins: earlier accesses may be of another configuration
            accesses[log, "r"] = set()
            accesses[log, "w"] = set()
        accesses[log, mode].add(path)
    assert {log for log, _ in accesses} >= set(jobs)  # every job was traced
    others = []
    for (log, mode), paths in accesses.items():
        for path in sorted(paths):
            if log in jobs and (project.root / path).is_file() and not is_declared(jobs[log], mode, path):
                others.append((jobs[log]["rule"], mode, path))
    return others


def is_declared(job: dict[str, Any], mode: str, path: str) -> bool:
    rule = job["rule"]
    if path.startswith(OF_EVERY_JOB[mode]) or (rule in KEPT and path.startswith(KEPT[rule])):
        return True
    if mode == "r" and re.fullmatch(NO_INPUTS.get(rule, ""), path):
        return True
    declared = [*job["output"], *job["log"]]
    if mode == "r":
        declared += job["input"]
    return any(path == file or path.startswith(f"{file}/") for file in declared)
