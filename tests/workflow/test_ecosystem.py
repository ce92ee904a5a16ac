"""Results are usable without this project: through the Hub's cards and TRL's command line.

PEFT: test_grid.py; a vLLM server: test_vllm.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from g2d.checks.load import load
from g2d.grid.grid import Grid
from tests.workflow import forked
from tests.workflow.conftest import Project

HARVEST = "micro/seed0/harvest/g2/k2"


def test_every_adapter_has_a_card(micro_grid: Project, micro_config: dict[str, Any]) -> None:
    trained = [policy.folder for policy in Grid(load(micro_config)).trained]
    assert len(trained) == 9
    for policy in trained:
        card = ModelCard.load(micro_grid.results / policy / "adapter/README.md")
        assert card.data.to_dict()["library_name"] == "peft"


def test_pairs_train_with_trls_own_command_line(micro_grid: Project, tmp_path: Path) -> None:
    """`trl dpo` starts the same module."""
    data = tmp_path / "pairs"
    data.mkdir()
    shutil.copy(micro_grid.results / HARVEST / "pairs.jsonl", data)
    command = [
        *(forked.python(), "-m", "trl.cli.main", "dpo", "--output_dir", str(tmp_path / "out"), "--max_steps", "2"),
        *("--model_name_or_path", str(micro_grid.results / "micro/base/model")),
        *("--dataset_name", str(data)),
        *("--use_peft", "--use_cpu", "--bf16", "false", "--gradient_checkpointing", "false"),
        *("--report_to", "none", "--eval_strategy", "no", "--save_strategy", "no"),
    ]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "out/adapter_model.safetensors").exists()
