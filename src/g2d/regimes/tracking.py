"""Trackers that trainers report their metrics to, below `results/logs`; none is given an account or a server."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

from g2d.jobs.stage import LOGS, set_trackio_folder
from g2d.settings import Section, key

PROJECT = "g2d"


class Logging(Section):
    """Trackers of training metrics, in addition to `metrics.jsonl`. Does not change results."""

    report_to: Literal["none", "tensorboard", "trackio", "wandb"] = key(
        "none",
        "Tracker to write to results/logs/ (docs/recipes.md).",
    )


def tracking_arguments(settings: Logging, policy_id: str) -> dict[str, Any]:
    """The arguments by which a trainer reports its metrics. Trackers learn from the environment where to write:
    TensorBoard in a folder per policy, trackio in one database, W&B in a folder per attempt."""
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(LOGS.resolve() / "tensorboard" / policy_id)
    set_trackio_folder()
    if settings.report_to == "wandb":
        prepare_wandb()
    return {"report_to": settings.report_to, "run_name": policy_id, "project": PROJECT}


def prepare_wandb() -> None:
    """Have W&B write to `results/logs/wandb` and ask no server, unless the user's environment has a WANDB_MODE."""
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ["WANDB_DIR"] = str(LOGS.resolve())  # to which it adds "wandb"
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": PROJECT,
        "WANDB_CONSOLE": "off",  # the job's log has it
        "WANDB_ERROR_REPORTING": "false",
    }.items():
        os.environ.setdefault(name, value)


def finish_tracking() -> None:
    """End the run of W&B, so that its file is whole: jobs that share imports end without what it has registered for
    their end. The other trackers end theirs with the trainer."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish()


def sync_command() -> str | None:
    """The command that uploads all runs that were written without a server; None where there are none."""
    return f"wandb sync {LOGS}/wandb/offline-run-*" if any(LOGS.glob("wandb/offline-run-*")) else None
