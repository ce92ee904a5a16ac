"""Print the jobs of a plan and what they are made from: `python planned_jobs.py SNAKEMAKE_ARGUMENTS`.

JSON: a list of jobs. Each has its rule and wildcards, inputs and outputs (also by name), its log, the `repr` of its
parameters, its GPUs, its time limit in minutes and the numbers of the jobs that it needs.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

from snakemake.cli import main
from snakemake.workflow import Workflow

jobs: list[dict[str, Any]] = []
build = Workflow._build_dag


def named(files: Any) -> dict[str, list[str]]:
    by_name = {}
    for name, paths in files.items():
        by_name[name] = [paths] if isinstance(paths, str) else list(paths)
    return by_name


def build_and_keep(self: Workflow, *args: Any, **kwargs: Any) -> None:
    build(self, *args, **kwargs)
    numbers = {job: number for number, job in enumerate(self.dag.jobs)}
    jobs.clear()
    for job in numbers:
        jobs.append(
            {
                "rule": job.rule.name,
                "wildcards": dict(job.wildcards.items()),
                "named": {"input": named(job.input), "output": named(job.output)},
                "params": {name: repr(value) for name, value in job.params.items()},
                "input": list(job.input),
                "output": list(job.output),
                "log": list(job.log),
                "gpus": job.resources.get("gpu", 0),
                "minutes": job.resources.get("runtime"),
                "needs": [numbers[other] for other in self.dag.dependencies[job]],
            }
        )


if __name__ == "__main__":
    Workflow._build_dag = build_and_keep
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["-n", "--quiet", "all", *sys.argv[1:]])
    json.dump(jobs, sys.stdout)
