"""Trackers of metrics below `results/logs`, without an account or server."""

from __future__ import annotations

import os
import sys
from typing import Literal

from g2d.jobs.stage import LOGS, set_trackio_folder
from g2d.settings import Section, key

PROJECT = "g2d"


class Logging(Section):
    """Tracker of training metrics, in addition to `metrics.jsonl`."""

    report_to: Literal["none", "tensorboard", "trackio", "wandb"] = key(
        "none", "Tracker to write to results/logs/ (docs/recipes.md)."
    )


def tracking_arguments(settings: Logging, policy_id: str) -> dict[str, str]:
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(LOGS.resolve() / "tensorboard" / policy_id)
    set_trackio_folder()
    if settings.report_to == "wandb":
        _prepare_wandb()
    return {"report_to": settings.report_to, "run_name": policy_id, "project": PROJECT}


def _prepare_wandb() -> None:
    """Let W&B write below `results/logs`, without a server unless the user has set WANDB_MODE."""
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ["WANDB_DIR"] = str(LOGS.resolve())  # W&B appends "wandb"
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": PROJECT,
        "WANDB_CONSOLE": "off",
        "WANDB_ERROR_REPORTING": "false",
    }.items():
        os.environ.setdefault(name, value)


def finish_tracking() -> None:
    """Finish the W&B run: jobs with shared imports skip its exit handler."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish()


def sync_command() -> str | None:
    return f"wandb sync {LOGS}/wandb/offline-run-*" if any(LOGS.glob("wandb/offline-run-*")) else None
