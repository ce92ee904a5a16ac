"""Sections that tests add to the micro configuration, and files that its grid leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import open_ended
from tests.rewards.models import reward_model
from tests.workflow.conftest import Project, copy_of_extended

SUMMARIES = {"make_tables": 1, "plot_figures": 1, "all": 1, "record_provenance": 1, "build_report": 1}


def metrics(project: Project, folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.results / folder / "metrics.jsonl").read_text().splitlines()]


def lines(project: Project, folder: str, name: str = "metrics.jsonl") -> list[str]:
    return (project.results / "micro/seed0" / folder / name).read_text().splitlines()


RFT = {"regime": "rft", "learning_rate": 5e-4, "epochs": 1}


SEMI_ONLINE = {
    "regime": "semi_online_dpo",
    "steps": [2, 4],
    "sync_every": 2,
    "responses": 4,
    "prompts_per_update": 8,
    "max_completion_length": 24,
    "learning_rate": 1e-3,
}


def on_one(config: dict[str, Any]) -> dict[str, Any]:
    """One of the two benchmarks, so that new policies answer fewer questions."""
    return {"benchmarks": {"arithmetic": config["benchmarks"]["arithmetic"]}}


SECTION = {
    "pool": open_ended.POOL,
    "held_out": open_ended.HELD_OUT,
    "reward": "polite",
    "samples_per_prompt": 2,
    "max_completion_length": 16,
    "batch_size": 256,
}


REWARDS = {"polite": open_ended.JUDGE, "dear": open_ended.JUDGE | {"max_length": 100}}


ASKED = {
    "rewards": REWARDS,
    "open_ended": SECTION,
    "ablations": {"both-grpo": {"steps": [2], "prompts": "mixed", "policies": ["grpo"]}},
    "regimes": {
        "both": SEMI_ONLINE | {"steps": [2], "prompts": "mixed", "open_ended_share": 0.25},
        "open": SEMI_ONLINE | {"steps": [2], "prompts": "open_ended"},
        "then": SEMI_ONLINE | {"steps": [2], "start": "open", "start_step": 2},
    },
}


def with_prompts(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return config | on_one(config) | ASKED | changes


def copy_with_prompts(micro_config: dict[str, Any], to: Path) -> tuple[Project, dict[str, int]]:
    """Copy the finished grid with open-ended prompts; also return the added jobs."""
    return copy_of_extended(
        "asked", micro_config, with_prompts(micro_config), to, add=lambda root: reward_model(root / "judge")
    )
