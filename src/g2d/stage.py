"""What every stage does around its work: its version, its log, its bill and its last word when it fails.

Snakemake re-runs a job when its script, parameters or inputs change and does not look into imported modules. So each
rule passes its stage's version as a parameter: whoever changes what a stage *computes* raises the number here, and
exactly the affected jobs run again; a comment or a refactoring re-runs nothing.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from g2d.cost import Meter, measure, write_cost
from g2d.orphans import end_with_snakemake

VERSIONS = {
    "scratch_model": 1,
    "pretrained_model": 1,
    "load_problems": 1,
    "check_leakage": 1,
    "calibrate": 2,
    "select_training_set": 1,
    "make_factorial": 1,
    "train_grpo": 1,
    "harvest_rollouts": 2,
    "build_pairs": 2,
    "build_several_pairs": 1,
    "train_dpo": 1,
    "evaluate": 2,
    "make_tables": 1,
    "render_tables": 1,
    "draw_figures": 1,
    "write_cards": 1,
    "audit_papers": 1,
    "record_provenance": 1,
    "write_methods": 1,
    "build_report": 1,
}


@contextmanager
def stage(snakemake: Any) -> Iterator[Meter]:
    """Run the body of a rule's script.

    Everything printed goes to the rule's log. If one of the outputs is a `cost.json`, the measured cost is written
    there together with the costs among its inputs. An exception leaves its traceback in the log and one line on the
    terminal, and the process exits with 1.
    """
    terminal = _redirect_output(Path(snakemake.log[0]))
    end_with_snakemake()
    os.environ["OMP_NUM_THREADS"] = str(snakemake.threads)  # for a torch that is imported later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(snakemake.threads)
    try:
        cost = next((path for path in snakemake.output if path.endswith("cost.json")), None)
        job = str(Path(cost or snakemake.output[0]).with_suffix(""))
        with measure(job=job, stage=snakemake.rule.removesuffix("_shard")) as meter:
            yield meter
        if cost:
            write_cost(cost, meter.cost, parents=snakemake.input.get("costs", []))
    except Exception as error:
        print(f"{snakemake.rule}: {error}\n  details: {snakemake.log[0]}", file=terminal, flush=True)
        with suppress(OSError):  # the log may be on the disk that is full
            traceback.print_exc()
            sys.stderr.flush()
        sys.exit(1)


def _redirect_output(log: Path) -> Any:
    """Send file descriptors 1 and 2 to the log, native libraries included; return the terminal."""
    log.parent.mkdir(parents=True, exist_ok=True)
    terminal = os.fdopen(os.dup(2), "w")
    sys.stdout.flush()
    sys.stderr.flush()
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    return terminal
