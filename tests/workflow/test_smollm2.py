"""A grid of a real pretrained model, from the GGUF file of a Python package to the page: `make test-smollm2`."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pandas as pd
import pytest

from g2d.policies.record import read_policy
from tests.shared import NEEDS_SMOLLM2, SMOLLM2
from tests.workflow.conftest import Project

pytestmark = [pytest.mark.smollm2, pytest.mark.slow, NEEDS_SMOLLM2]

EXAMPLE = {"problem": "Calculate: 5 + 3", "answer": "5 + 3 = 8. \\boxed{8}"}
ARITHMETIC = {"source": "synthetic", "family": "arithmetic"}
CONFIG: dict[str, Any] = {
    "seeds": [0],
    "models": {"smollm2": {"source": "gguf", **SMOLLM2}},
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
    return Project.create(tmp_path_factory.mktemp("smollm2") / "g2d", CONFIG)


def test_a_real_model_passes_through_the_grid(project: Project) -> None:
    assert project.planned()["gguf_model"] == 1
    project.build()
    results = project.root / "results"
    base = read_policy(results / "smollm2/base/policy.json")
    assert base.converted_from is not None
    drawn = pd.read_parquet(results / "smollm2/seed0/harvest/g4/k1/rollouts.parquet")
    assert drawn["prompt_text"].str.contains(EXAMPLE["answer"], regex=False).all()
    quantized = "numbers are not those of the original checkpoint"
    for file in ("report/index.html", "smollm2/seed0/dpo/g4/k1/adapter/README.md"):
        assert quantized in (results / file).read_text(), file
    record = json.loads((results / "provenance.json").read_text())["models"]["smollm2"]
    assert record["converted_from"] == base.converted_from
    assert project.planned() == {}


def test_a_made_model_that_is_deleted_is_made_again(project: Project) -> None:
    shutil.rmtree(project.root / "results/smollm2/base/model")
    assert project.planned()["gguf_model"] == 1
