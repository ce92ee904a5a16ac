"""A script with a stage, as a command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

SCRIPT = """
import os, sys
from types import SimpleNamespace
from g2d.jobs.stage import stage

class Named(list):
    def get(self, name, default=None):
        return getattr(self, name, default)

output, given = Named(["cost.html", "cost.json"]), Named({read})
given.costs = []
snakemake = SimpleNamespace(rule="{rule}", threads=3, log=["{log}"], output=output, input=given)
snakemake.wildcards = {"model": "demo"}
snakemake.resources = dict(gpu={gpus})
snakemake.config = {"models": {"demo": {"source": "embedded"}, "real": {"source": "hub"}}}
with stage(snakemake) as meter:
    print("from python")
    os.system("echo from a child process")
    meter.tokens_generated += 7
    print(os.environ["OMP_NUM_THREADS"])
    {body}
"""


def command(
    body: str, rule: str = "train_dpo", gpus: int = 0, read: Sequence[str] = (), log: str = "logs/a.log"
) -> list[str]:
    script = SCRIPT.replace("{body}", body).replace("{rule}", rule).replace("{gpus}", str(gpus))
    return [sys.executable, "-c", script.replace("{read}", repr(read)).replace("{log}", log)]
