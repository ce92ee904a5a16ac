"""A miniature of config/small.yaml: SmolLM2 on one-digit arithmetic, with vLLM in every stage, for a CPU.

    python -m tests.workflow.miniature FOLDER MODEL [--bfloat16]

runs the large one in FOLDER, or continues it. With `--bfloat16` engines and trainers round as on a GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests import shared
from tests.workflow.conftest import REPOSITORY, Project

ARITHMETIC = {"source": "synthetic", "family": "arithmetic", "levels": [1]}
EXAMPLE = {"problem": "Work out 5 + 3.", "answer": "5 + 3 = 8. \\boxed{8}"}


ON_GPUS = "torch.bfloat16 if torch.cuda.is_available() else torch.float32"


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


def rounding_as_on_a_gpu(root: Path, config: dict[str, Any]) -> Project:
    """Create a project whose models, trainers and vLLM compute in bfloat16; vLLM applies adapters at each step.

    vLLM then uses AMX if the CPU has it, and oneDNN asks the kernel for AMX only without a limit on its kernels.
    """
    config |= {"engine": config["engine"] | {"adapters": "lora"}, "training": {"precision": "bfloat16"}}
    project = Project.create(root, config, unlimited=True)
    record = root / "src/g2d/policies/record.py"
    text = record.read_text()
    assert ON_GPUS in text
    record.write_text(text.replace(ON_GPUS, "torch.bfloat16"))
    return project


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--bfloat16", action="store_true")
    given = parser.parse_args()
    root = given.folder.resolve() / "g2d"
    shared.use(root.parent / "shared")
    if root.exists():
        project = Project(root)
    elif given.bfloat16:
        project = rounding_as_on_a_gpu(root, miniature(given.model))
    else:
        project = Project.create(root, miniature(given.model))
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    return subprocess.run(command, cwd=root, env=project.environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
