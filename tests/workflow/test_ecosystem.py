"""Results are usable without this project: through the Hub's cards and TRL's command line.

PEFT: test_grid.py; a vLLM server: test_vllm.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from huggingface_hub import ModelCard

from g2d.checks.load import load
from g2d.grid.grid import Grid
from tests.workflow import forked
from tests.workflow.conftest import Project

HARVEST = "micro/seed0/harvest/g2/k2"
ADAPTER = "micro/seed0/dpo/g2/k4/adapter"


def front_matter(card: Path) -> dict[str, Any]:
    _, header, _ = card.read_text().split("---\n", 2)
    return yaml.safe_load(header)


def test_every_adapter_and_harvest_has_a_card(micro_grid: Project, micro_config: dict[str, Any]) -> None:
    reported = [policy.folder for policy in Grid(load(micro_config)).trained]
    assert len(reported) == 8
    for folder in (micro_grid.results / name / "adapter" for name in reported):
        text = (folder / "README.md").read_text()
        assert "Micro grid of the tests." in text
        assert front_matter(folder / "README.md")["library_name"] == "peft"
    table = pd.read_csv(micro_grid.results / "tables/main.csv")
    row = table[(table.policy == "g2d") & (table.K == 4) & (table.benchmark == "arithmetic")].iloc[0]
    card = ModelCard.load(micro_grid.results / ADAPTER / "README.md")
    assert f"| arithmetic | {row.accuracy:.3f} |" in card.text
    [result] = [result for result in card.data.eval_results or [] if result.dataset_name == "arithmetic"]
    assert result.metric_value == round(row.accuracy, 4)


def test_a_harvest_loads_as_a_data_set_by_its_card(micro_grid: Project, tmp_path: Path) -> None:
    from datasets import load_dataset

    folder = str(micro_grid.results / HARVEST)
    pairs = load_dataset(folder, split="train", cache_dir=str(tmp_path))
    rollouts = load_dataset("parquet", data_files=f"{folder}/rollouts.parquet", split="train", cache_dir=str(tmp_path))
    assert len(pairs) == len((micro_grid.results / HARVEST / "pairs.jsonl").read_text().splitlines())
    assert {"prompt", "chosen", "rejected"} <= set(pairs.column_names)
    assert len(rollouts) == 60 * 8


def test_pairs_train_with_trls_own_command_line(micro_grid: Project, tmp_path: Path) -> None:
    """`trl dpo` starts the same module."""
    command = [
        *(forked.python(), "-m", "trl.cli.main", "dpo", "--output_dir", str(tmp_path / "out"), "--max_steps", "2"),
        *("--model_name_or_path", str(micro_grid.results / "micro/base/model")),
        *("--dataset_name", str(micro_grid.results / HARVEST)),
        *("--use_peft", "--use_cpu", "--bf16", "false", "--gradient_checkpointing", "false"),
        *("--report_to", "none", "--eval_strategy", "no", "--save_strategy", "no"),
    ]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "out/adapter_model.safetensors").exists()
