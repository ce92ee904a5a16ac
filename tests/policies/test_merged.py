"""The command of docs/recipes.md that merges an adapter."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from g2d.policies.record import PolicyRecord, load_model, load_tokenizer
from tests.models import adapted, tiny_policy

PAGE = Path(__file__).parents[2] / "docs/recipes.md"


def test_a_merged_folder_computes_the_same_as_the_policy(tmp_path: Path) -> None:
    [command] = re.findall(r"^## A merged model\n.*?^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    model = tmp_path / "results/qwen2.5-7b-instruct"
    base = tiny_policy()
    shutil.copytree(base.base, model / "base/model")
    policy = adapted(base, model / "seed0/dpo/g2/k150/adapter", std=0.1)

    python = Path(sys.executable).parent
    path = os.pathsep.join([str(python), os.environ["PATH"]])
    subprocess.run(["bash", "-euc", command], cwd=tmp_path, env=os.environ | {"PATH": path}, check=True)

    merged = PolicyRecord("tiny/merged", "tiny", "base", base=str(tmp_path / "merged"))
    tokens = load_tokenizer(merged)("What is 3 + 4?", return_tensors="pt")
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(merged.base)(**tokens).logits
        expected = load_model(policy)(**tokens).logits
        of_base = load_model(base)(**tokens).logits
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected)
    assert (logits - of_base).abs().max() > 0.01
