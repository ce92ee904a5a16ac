"""docs/architecture.md lists the files from the rule `train_grpo` to the loss as they are."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from g2d.policies.model_keys import Lora
from g2d.problems.synthetic import generate
from g2d.regimes.catalogue import REGIMES
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo.keys import Warmup
from g2d.rewards.training_reward import TrainingReward
from g2d.rollouts.transformers_engine import TransformersEngine
from tests.models import tiny_policy

ROOT = Path(__file__).parents[2]
BEFORE_THE_REGIME = ["workflow/rules/online.smk", "workflow/scripts/train.py"]  # and the script's stage


WALK = (ROOT / "docs/architecture.md").read_text().partition("## From the rule")[2].partition("\n## ")[0]


def test_the_walk_is_short_and_its_files_exist() -> None:
    listed = re.findall(r"^\d+\. `([^`]+)`", WALK, re.M)
    assert listed[:2] == BEFORE_THE_REGIME
    assert len(listed) <= 10
    for file in re.findall(r"`((?:src|workflow)/[\w/]+\.\w+)`", WALK):
        assert (ROOT / file).is_file(), file


def test_the_walk_lists_the_files_that_a_training_passes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = re.findall(r"^\d+\. `([^`]+)`", WALK, re.M)
    passed: dict[str, list[str]] = {}

    def recorded(owner: type, function: str, name: str) -> None:
        original = getattr(owner, function)

        def wrapper(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if name != "loss" or torch.is_grad_enabled():
                passed[name] = []
                for frame in traceback.extract_stack():
                    if frame.filename.startswith(f"{ROOT}/src/g2d"):
                        passed[name].append(Path(frame.filename).relative_to(ROOT).as_posix())
            return original(self, *arguments, **keywords)

        monkeypatch.setattr(owner, function, wrapper)

    recorded(GRPOTrainer, "_get_per_token_logps_and_entropies", "loss")
    recorded(TransformersEngine, "sample", "sampling")
    recorded(TrainingReward, "__call__", "reward")
    warmup = Warmup(steps=[0, 1], learning_rate=1e-3, max_completion_length=4)
    problems = generate("arithmetic", "train", 8, seed=0)
    job = TrainingJob(tiny_policy(), problems, warmup, seed=0, work=tmp_path, lora=Lora(), group_size=2, k=1)
    REGIMES["grpo"].train(job)

    assert list(dict.fromkeys(passed["loss"])) == listed[3:]
    assert passed["sampling"][-1] == "src/g2d/regimes/common/online.py"
    unlisted = {*passed["loss"], *passed["sampling"], *passed["reward"]} - {*listed}
    assert unlisted <= {*re.findall(r"`(src/[\w/]+\.py)`", WALK)}
