"""Begin jobs of a finished grid with one byte of a file changed and its mtime kept: `python changed_files.py`.

The output is JSON: the kinds of files that no job reads, and for every kind of file and every rule that reads it, what
a job of this rule printed. A job is a fork that runs its script. It prints `BEGAN` and ends where its work would begin.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from snakemake.cli import main
from snakemake.workflow import Workflow

from g2d.jobs import stage
from g2d.jobs.digests import MARK, NO_OUTPUTS

BEGAN = "began to compute"
SCRIPTS = Path("workflow/scripts")
build = Workflow._build_dag
run_stage = stage.stage
workflows: list[Workflow] = []


def build_and_keep(self: Workflow, *args: Any, **kwargs: Any) -> None:
    build(self, *args, **kwargs)
    workflows.append(self)


@contextlib.contextmanager
def stage_until_the_work(snakemake: Any, reads: Iterable[str] = ()) -> Iterator[Any]:
    with run_stage(snakemake, reads):
        raise RuntimeError(BEGAN)
    yield


# Names of policies, G and K, names of tables, figures, problems and benchmarks.
NAMES = re.compile(
    r"(?<=/seed0/)[^/]+|(?<=/[gk])\d+|(?:(?<=/tables/)|(?<=/figures/)|(?<=/problems/)|(?<=/eval/))[^./]+"
)


def kind(file: str) -> str:
    """The file's path without these names."""
    return NAMES.sub("*", file)


def files_in(paths: Iterable[str]) -> list[str]:
    """Return the files among these paths, and all files in the folders."""
    found = []
    for path in map(Path, paths):
        for file in [path, *path.rglob("*")]:
            if file.is_file() and file.name != MARK:
                found.append(str(file))
    return found


def read_by(job: Any) -> list[str]:
    """Files of the results that a job reads."""
    return [file for file in files_in(job.input) if file.startswith("results/")]


def reply_of(job: Any, workflow: Workflow) -> str:
    """Return the terminal output of a job until its work begins."""
    snakemake = SimpleNamespace(rule=job.rule.name, config=workflow.config, scriptdir=str(SCRIPTS))
    for name in ("input", "output", "params", "wildcards", "threads", "resources", "log"):
        setattr(snakemake, name, getattr(job, name))
    with tempfile.TemporaryFile() as terminal:
        child = os.fork()
        if child == 0:
            for descriptor in (1, 2):
                os.dup2(terminal.fileno(), descriptor)
            try:
                runpy.run_path(str(SCRIPTS / Path(job.rule.script).name))["main"](snakemake)
            except BaseException as error:
                os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 99)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        terminal.seek(0)
        return f"exit status {status}: {terminal.read().decode()}"


@contextlib.contextmanager
def changed(file: Path) -> Iterator[None]:
    """One bit of a file is another one for a while, under the same time stamps."""
    content = file.read_bytes()
    times = file.stat()
    middle = len(content) // 2
    try:
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        yield
    finally:
        file.write_bytes(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def begin_all() -> dict[str, Any]:
    """Begin one job of every rule for every kind of file that it reads."""
    stage.stage = stage_until_the_work
    scripts = "".join(script.read_text() for script in SCRIPTS.glob("*.py"))
    for module in {*re.findall(r"from (g2d[.\w]+) import", scripts)}:
        import_module(module)  # else each job imports them
    [workflow] = workflows
    all_kinds = {kind(file) for file in files_in(["results"]) if Path(file).parts[1] not in NO_OUTPUTS}
    jobs = [job for job in workflow.dag.jobs if job.rule.script]
    readers: dict[tuple[str, str], tuple[Any, str]] = {}
    for job in jobs:
        for file in read_by(job):
            readers.setdefault((kind(file), job.rule.name), (job, file))
    replies = []
    for (name, rule), (job, file) in sorted(readers.items()):
        with changed(Path(file)):
            replies.append([name, rule, file, reply_of(job, workflow)])
    whole = {job.rule.name: reply_of(job, workflow) for job in jobs}
    unread = all_kinds - {name for name, _ in readers}
    return {"unread": sorted(unread), "replies": replies, "unchanged": whole}


if __name__ == "__main__":
    Workflow._build_dag = build_and_keep
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["-n", "--quiet", "all"])
    json.dump(begin_all(), sys.stdout)
