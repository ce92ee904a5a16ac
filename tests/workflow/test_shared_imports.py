"""Jobs that share their imports leave what jobs with imports of their own leave."""

from __future__ import annotations

from typing import Any

from g2d.jobs.shared_imports import LOG
from tests.workflow.conftest import Project

CELL = "results/micro/seed0"
FILES = [
    "grpo/g2/k2/adapter/adapter_model.safetensors",
    "grpo/g2/k2/rollouts.parquet",
    "harvest/g2/k2/rollouts.parquet",
    "dpo/g2/k2/adapter/adapter_model.safetensors",
    "dpo/g2/k2/eval/arithmetic.parquet",
]
STAGES = ["train_grpo", "harvest_rollouts", "train_dpo", "evaluate"]


def test_a_cell_has_the_same_bytes_with_imports_of_its_own(
    micro_grid: Project, own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    assert micro_config.get("share_imports", True)
    own = own_micro_grid
    own.configure(micro_config | {"share_imports": False})
    assert own.planned() == {}  # it is no part of a result
    before = {file: (own.root / CELL / file).stat().st_mtime_ns for file in FILES}
    own.build(f"{CELL}/{FILES[-1]}", "-R", *STAGES)
    for file in FILES:
        assert (own.root / CELL / file).stat().st_mtime_ns > before[file], file
        assert (own.root / CELL / file).read_bytes() == (micro_grid.root / CELL / file).read_bytes(), file


def test_a_job_of_a_cluster_makes_its_own(own_micro_grid: Project, micro_config: dict[str, Any]) -> None:
    """It runs in a Snakemake of its own, in this mode; a process to share with would serve that job alone."""
    own, answers = own_micro_grid, f"{CELL}/{FILES[-1]}"
    own.configure(micro_config | {"share_imports": True})
    log = own.root / LOG
    for mode, shares in (("remote", False), ("default", True)):
        log.unlink(missing_ok=True)
        own.build("--mode", mode, "-R", "evaluate", "--", answers)
        assert log.exists() is shares, mode
