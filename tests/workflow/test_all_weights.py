"""`lora: none` in a grid: policies are whole models, and checkpoints that are no longer needed are emptied."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from g2d.jobs.digests import MARK
from g2d.jobs.files import sha256
from g2d.policies import read_policy
from g2d.regimes.common.checkpoints import MANIFEST
from tests.workflow.conftest import Project

SEED = "micro/seed0"
ANSWERS = f"results/{SEED}/dpo/g2/k4/eval/arithmetic.parquet"


@dataclass(frozen=True)
class AllWeights:
    """The finished grid with all weights trained to K=4, and what Snakemake said before that."""

    project: Project
    refusal: str  # with the adapter's training in the place of K=2
    planned: dict[str, int]  # without it

    @property
    def seed0(self) -> Path:
        return self.project.results / SEED


def all_weights(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return config | {"lora": "none", "checkpoints": {"keep": "last"}} | changes


@pytest.fixture(scope="module")
def trained(micro_grid: Project, micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> AllWeights:
    project = micro_grid.copied(tmp_path_factory.mktemp("weights") / "g2d")
    project.configure(all_weights(micro_config))
    refusal = project.refused("-n", ANSWERS)
    shutil.rmtree(project.results / SEED / "grpo/g2/k2")
    planned = project.planned(ANSWERS)
    project.build("--quiet", "rules", "--", ANSWERS)
    return AllWeights(project, refusal, planned)


def test_a_checkpoint_of_an_adapter_is_not_continued(trained: AllWeights) -> None:
    """The adapter's training left a checkpoint, and no weights of a whole model."""
    assert f"results/{SEED}/grpo/g2/k2/weights/model.safetensors is missing" in trained.refusal


def test_all_jobs_behind_the_answers_run(trained: AllWeights) -> None:
    assert trained.planned == {
        "train_grpo": 2,
        "harvest_rollouts": 1,
        "build_pairs": 1,
        "train_dpo": 1,
        "evaluate": 1,
    }
    assert trained.project.planned(ANSWERS) == {}


@pytest.mark.parametrize("folder", ["grpo/g2/k2", "grpo/g2/k4", "dpo/g2/k4"])
def test_a_policy_is_a_whole_model(trained: AllWeights, folder: str) -> None:
    policy = read_policy(trained.seed0 / folder / "policy.json")
    assert (policy.adapter, policy.weights) == (None, f"results/{SEED}/{folder}/weights")
    assert policy.weights_sha256 == sha256(trained.seed0 / folder / "weights/model.safetensors")
    assert (trained.seed0 / folder / "weights/config.json").is_file()


def test_a_policy_loads_with_the_tokenizer_of_m0(trained: AllWeights) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = read_policy(trained.project.results / "micro/base/policy.json")
    model = AutoModelForCausalLM.from_pretrained(trained.seed0 / "dpo/g2/k4/weights")
    tokenizer = AutoTokenizer.from_pretrained(trained.project.root / base.base)
    assert len(tokenizer) == model.config.vocab_size


def test_only_the_last_checkpoint_keeps_its_files(trained: AllWeights) -> None:
    earlier = trained.seed0 / "grpo/g2/k2/checkpoint"
    assert {file.name for file in earlier.iterdir()} == {MANIFEST, MARK}
    assert (trained.seed0 / "grpo/g2/k4/checkpoint/optimizer.pt").is_file()


def test_a_k_after_an_emptied_checkpoint_trains_the_k_before_it_again(
    trained: AllWeights, micro_config: dict[str, Any], tmp_path: Path
) -> None:
    project = trained.project.copied(tmp_path / "g2d")
    project.configure(all_weights(micro_config, warmup=micro_config["warmup"] | {"steps": [0, 2, 3, 4]}))
    target = f"results/{SEED}/grpo/g2/k3/policy.json"
    assert f"k2/checkpoint: {target} " in project.refused("-n", target)
    shutil.rmtree(project.results / SEED / "grpo/g2/k2/checkpoint")
    assert project.planned(target) == {"train_grpo": 2}
