"""`lora: none` in a grid: policies are whole models, and checkpoints that are no longer needed are emptied."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from g2d.jobs.digests import MARK
from g2d.jobs.files import sha256
from g2d.policies import read_policy
from g2d.regimes.run.checkpoints import MANIFEST
from tests.workflow.conftest import Project

SEED = "micro/seed0"
ANSWERS = f"results/{SEED}/dpo/g2/k4/eval/arithmetic.parquet"


def test_a_policy_is_a_model_that_later_stages_load(
    micro_grid: Project, micro_config: dict[str, Any], tmp_path: Path
) -> None:
    project = micro_grid.copied(tmp_path / "g2d")
    project.configure(micro_config | {"lora": "none", "checkpoints": {"keep": "last"}})
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trained = {"train_grpo": 2, "harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 1}
    # The adapter's training left a checkpoint, and no weights of a whole model.
    missing = f"results/{SEED}/grpo/g2/k2/weights/model.safetensors is missing"
    assert missing in project.refused("-n", ANSWERS)
    shutil.rmtree(project.results / SEED / "grpo/g2/k2")
    assert project.planned(ANSWERS) == trained
    project.build("--quiet", "rules", "--", ANSWERS)
    for name in ("grpo/g2/k2", "grpo/g2/k4", "dpo/g2/k4"):
        folder = project.results / SEED / name
        policy = read_policy(folder / "policy.json")
        assert (policy.adapter, policy.weights) == (None, f"results/{SEED}/{name}/weights")
        assert policy.weights_sha256 == sha256(folder / "weights/model.safetensors")
        assert (folder / "weights/config.json").is_file()
    base = read_policy(project.results / "micro/base/policy.json")
    model = AutoModelForCausalLM.from_pretrained(folder / "weights")
    assert len(AutoTokenizer.from_pretrained(project.root / base.base)) == model.config.vocab_size

    before, last = (project.results / SEED / f"grpo/g2/k{k}/checkpoint" for k in (2, 4))
    assert {file.name for file in before.iterdir()} == {MANIFEST, MARK}
    assert (last / "optimizer.pt").is_file()
    assert project.planned(ANSWERS) == {}

    between = {"warmup": micro_config["warmup"] | {"steps": [0, 2, 3, 4]}}
    project.configure(micro_config | between | {"lora": "none", "checkpoints": {"keep": "last"}})
    target = f"results/{SEED}/grpo/g2/k3/policy.json"
    assert f"k2/checkpoint: {target} " in project.refused("-n", target)
    shutil.rmtree(before)
    assert project.planned(target) == {"train_grpo": 2}
