"""A job of a cluster does not share imports."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.jobs.shared_imports import LOG
from tests.workflow import as_python
from tests.workflow.conftest import Project


def test_a_job_of_a_cluster_imports_its_packages(
    own_micro_grid: Project, micro_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a separate Snakemake, so nobody could share."""
    monkeypatch.setenv(as_python.DOOR_OF_SCRIPTS, as_python.HEAVY)
    project, answers = own_micro_grid, "results/micro/seed0/dpo/g2/k2/eval/arithmetic.parquet"
    project.configure(micro_config | {"share_imports": True})
    log = project.root / LOG
    for mode, shares in (("remote", False), ("default", True)):
        log.unlink(missing_ok=True)
        project.build("--mode", mode, "-R", "evaluate", "--", answers)
        assert log.exists() is shares, mode
