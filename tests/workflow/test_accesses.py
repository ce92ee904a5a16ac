"""Jobs read and write below `results/` only what their rules declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.workflow.accesses import undeclared
from tests.workflow.conftest import Project
from tests.workflow.micro import copy_with_prompts


def of_its_benchmark(project: Project) -> list[tuple[str, str, str]]:
    """Jobs of the micro grid, which are not run again, also answered a benchmark that this grid does not have."""
    return [access for access in undeclared(project) if "word-problems" not in access[2]]


def test_jobs_read_inputs_and_leave_outputs(tmp_path: Path, micro_config: dict[str, Any]) -> None:
    project, _ = copy_with_prompts(micro_config, tmp_path / "g2d")
    assert of_its_benchmark(project) == []
    with open(project.root / "accesses.txt", "a") as lines:  # as a job that reads another's answers
        log = "results/logs/build_pairs/micro/seed0/g2/k2.log"
        lines.write(f"{log}\tr\tresults/micro/base/eval/arithmetic.parquet\n{log}\tw\tresults/micro/base/policy.json\n")
    assert of_its_benchmark(project) == [
        ("build_pairs", "r", "results/micro/base/eval/arithmetic.parquet"),
        ("build_pairs", "w", "results/micro/base/policy.json"),
    ]
