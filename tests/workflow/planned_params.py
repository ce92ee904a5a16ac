"""Print what Snakemake would record of the parameters of every job: `python planned_params.py SNAKEMAKE_ARGUMENTS`.

JSON: by rule, every distinct set of parameters (name and `repr`, as Snakemake compares them) and how many jobs have it.
Left out are settings of the machine, which Snakemake does not compare, and what changes on purpose: versions of stages,
names, titles and captions of tables and figures, and the whole configuration, which cheap jobs record.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections import Counter
from typing import Any

from snakemake.cli import main
from snakemake.workflow import Workflow

LEFT_OUT = {"machine", "version", "titles", "tables", "figures", "captions", "description", "config"}

planned: dict[str, Counter[tuple[tuple[str, str], ...]]] = {}
build = Workflow._build_dag


def build_and_keep(self: Workflow, *args: Any, **kwargs: Any) -> None:
    build(self, *args, **kwargs)
    for job in self.dag.jobs:
        params = tuple((name, repr(value)) for name, value in job.params.items() if name not in LEFT_OUT)
        planned.setdefault(job.rule.name, Counter())[params] += 1


if __name__ == "__main__":
    Workflow._build_dag = build_and_keep
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["-n", "--quiet", "all", *sys.argv[1:]])
    params_of = {}
    for rule, counts in sorted(planned.items()):
        if any(counts):
            params_of[rule] = [{"jobs": n, **dict(params)} for params, n in sorted(counts.items())]
    json.dump(params_of, sys.stdout, indent=1)
