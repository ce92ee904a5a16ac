"""Harvests without a right completion: trainings on them leave their start, and everything else goes on."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from g2d.policies import read_policy
from tests.workflow.conftest import Project
from tests.workflow.micro import RFT, on_one

SEED = "micro/seed0"


@pytest.fixture(scope="module")
def project(micro_grid: Project, micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One token is too few for an answer. The warm-ups, which have 16, stay as they were."""
    project = micro_grid.copied(tmp_path_factory.mktemp("no-pairs") / "g2d")
    short = {"harvest": micro_config["harvest"] | {"max_completion_length": 1}}
    project.extended(micro_config | on_one(micro_config) | short | {"regimes": {"rft": RFT | {"steps": [0]}}})
    return project


def answers(project: Project, policy: str) -> list[str]:
    return pd.read_parquet(project.results / policy / "eval/arithmetic.parquet")["completion_text"].tolist()


def test_policies_without_data_are_their_start(project: Project) -> None:
    assert (project.results / SEED / "harvest/g0/k0/pairs.jsonl").read_text() == "\n"
    for name in ("dpo/g0/k0", "dpo/g2/k4", "rft/g0/k0"):
        assert answers(project, f"{SEED}/{name}") == answers(project, "micro/base")
    grpo = load_file(project.results / SEED / "grpo/g2/k2/adapter/adapter_model.safetensors")
    from_warmup = load_file(project.results / SEED / "from-warmup/g2/k2/adapter/adapter_model.safetensors")
    assert from_warmup.keys() == grpo.keys()
    for name, weights in grpo.items():
        assert torch.equal(from_warmup[name], weights)
    statistics = read_policy(project.results / SEED / "dpo/g0/k0/policy.json").statistics
    assert statistics == {"n_pairs": 0, "gradient_steps": 0}


def test_tables_and_page_say_so(project: Project) -> None:
    main = pd.read_csv(project.results / "tables/main.csv")
    [m0] = main[main["policy"] == "base"].to_dict("records")
    [dpo] = main[main["policy"] == "dpo"].to_dict("records")
    assert (dpo["accuracy"], dpo["n_pairs"], dpo["updates"]) == (m0["accuracy"], 0, 0)
    page = (project.results / "report/index.html").read_text()
    assert "The harvest had no data for the training of " in page
    log = (project.results / "logs/build_pairs/micro/seed0/g0/k0.log").read_text()
    assert "no prompt has both a correct and a wrong rollout (60 prompts; " in log
