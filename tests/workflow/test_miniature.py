"""config/small.yaml in miniature, with a real pretrained model and vLLM beside the trainer (`make test-smollm2`).

In bfloat16 as on a GPU, engines and trainer round differently. The large one: `python -m tests.workflow.miniature`.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from g2d.rollouts.weights_check import MEMORY
from tests.shared import NEEDS_SMOLLM2, NEEDS_VLLM, made_smollm2
from tests.workflow.conftest import Project
from tests.workflow.micro import metrics
from tests.workflow.miniature import miniature, rounding_as_on_a_gpu

pytestmark = [pytest.mark.smollm2, pytest.mark.slow, NEEDS_SMOLLM2, NEEDS_VLLM]


RATIOS = {"float32": (0.99, 1.01), "bfloat16": (0.7, 1.4)}  # means of 16 completions


@pytest.mark.parametrize("precision", RATIOS)
def test_vllm_samples_in_every_stage_and_its_weights_are_the_policies(tmp_path: Path, precision: str) -> None:
    """Each start of vLLM, and the trainer's first sync, compares log-probabilities with transformers."""
    config = miniature(made_smollm2(), prompts=4, problems=8)
    create = rounding_as_on_a_gpu if precision == "bfloat16" else Project.create
    project = create(tmp_path / "g2d", config)
    project.build("--quiet", "rules", "--", "k2")
    results = project.results / "smollm2"
    files = ["calibration/rollouts", "seed0/harvest/g8/k2/rollouts"]
    files += ["base/eval/arithmetic", "seed0/dpo/g8/k2/eval/arithmetic"]
    for name in files:
        assert set(pd.read_parquet(results / f"{name}.parquet")["engine"]) == {"vllm"}, name
    steps = metrics(project, "smollm2/seed0/grpo/g8/k2")
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        assert RATIOS[precision][0] < row["sampling/importance_sampling_ratio/mean"] < RATIOS[precision][1]
    assert f"torch.{precision}" in (project.root / MEMORY).read_text()
