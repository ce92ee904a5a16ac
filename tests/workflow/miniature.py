"""A miniature of config/small.yaml: SmolLM2 on one-digit arithmetic, with vLLM in every stage, for a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.workflow.conftest import REPOSITORY

ARITHMETIC = {"source": "synthetic", "family": "arithmetic", "levels": [1]}
EXAMPLE = {"problem": "Work out 5 + 3.", "answer": "5 + 3 = 8. \\boxed{8}"}


def miniature(model: Path, *, prompts: int = 16, problems: int = 256) -> dict[str, Any]:
    """Return config/small.yaml with SmolLM2, K of 0 and 2, one seed and without `regimes`."""
    config: dict[str, Any] = yaml.safe_load((REPOSITORY / "config/small.yaml").read_text())
    del config["regimes"]
    config |= {
        "title": "A miniature of config/small.yaml",
        "seeds": [0],
        "models": {"smollm2": {"source": "local", "path": str(model)}},
        "pool": ARITHMETIC | {"split": "train", "n": 400},
        "benchmarks": {"arithmetic": ARITHMETIC | {"split": "development", "n": problems}},
        "prompt": {"examples": [EXAMPLE]},
        "training_set": {"n": prompts},
    }
    short = {"max_completion_length": 20}
    config["calibration"] |= short | {"problems_per_level": prompts}
    config["warmup"] |= short | {"steps": [0, 2], "prompts_per_step": 2, "per_device_batch_size": 8}
    config["harvest"] |= short
    config["evaluation"] |= {"max_completion_length": 24}
    return config
