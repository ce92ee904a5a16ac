"""Print the jobs of a plan and what they are made from: `python planned_jobs.py SNAKEMAKE_ARGUMENTS`.

JSON: a list of jobs, each with its rule, its inputs and outputs, its GPUs and the numbers of the jobs that it needs.
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


def build_and_keep(self: Workflow, *args: Any, **kwargs: Any) -> None:
    build(self, *args, **kwargs)
    numbers = {job: number for number, job in enumerate(self.dag.jobs)}
    jobs[:] = [
        {
            "rule": job.rule.name,
            "input": list(job.input),
            "output": list(job.output),
            "gpus": job.resources.get("gpu", 0),
            "needs": [numbers[other] for other in self.dag.dependencies[job]],
        }
        for job in numbers
    ]


if __name__ == "__main__":
    Workflow._build_dag = build_and_keep
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["-n", "--quiet", "all", *sys.argv[1:]])
    json.dump(jobs, sys.stdout)
