"""A grid of a real pretrained model, from the GGUF file of a Python package to the page (`make test-smollm2`)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.shared import NEEDS_SMOLLM2, made_smollm2
from tests.workflow.conftest import Project

pytestmark = [pytest.mark.smollm2, pytest.mark.slow, NEEDS_SMOLLM2]

EXAMPLE = {"problem": "Calculate: 5 + 3", "answer": "5 + 3 = 8. \\boxed{8}"}
ARITHMETIC = {"source": "synthetic", "family": "arithmetic"}
CONFIG: dict[str, Any] = {
    "seeds": [0],
    "pool": {**ARITHMETIC, "split": "train", "n": 40},
    "benchmarks": {"arithmetic": {**ARITHMETIC, "split": "test", "n": 4}},
    "prompt": {"examples": [EXAMPLE]},
    "calibration": {"levels": [1], "problems_per_level": 4, "samples_per_prompt": 2, "max_completion_length": 16},
    "training_set": {"n": 4},
    "warmup": {
        "steps": [0, 1],
        "group_sizes": [4],
        "per_device_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 16,
    },
    "harvest": {"samples_per_prompt": 4, "temperature": 1.0, "max_completion_length": 16},
    "evaluation": {"max_completion_length": 16},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    models = {"smollm2": {"source": "local", "path": str(made_smollm2())}}
    return Project.create(tmp_path_factory.mktemp("smollm2") / "g2d", CONFIG | {"models": models})


def test_a_real_model_passes_through_the_grid(project: Project) -> None:
    project.build()
    results = project.root / "results"
    drawn = pd.read_parquet(results / "smollm2/seed0/harvest/g4/k1/rollouts.parquet")
    assert drawn["prompt_text"].str.contains(EXAMPLE["answer"], regex=False).all()
    assert (results / "report/index.html").is_file()
    assert project.planned() == {}
