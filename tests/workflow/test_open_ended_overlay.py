"""The overlay of open-ended prompts in miniature: other prompts, models and sizes, everything else as shipped."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import yaml

from g2d.checks.load import read
from g2d.config.file import merged
from g2d.jobs.files import read_json
from tests.configs import CONFIG
from tests.open_ended import HELD_OUT, POOL
from tests.rewards.models import reward_model
from tests.workflow.conftest import Project
from tests.workflow.micro import on_one

SMALL = {"max_completion_length": 16}


@pytest.fixture(scope="session")
def overlay() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CONFIG / "overlays/open_ended.yaml").read_text())
    return values


@pytest.fixture(scope="session")
def in_miniature(micro_config: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    rewards = {name: {"reward": "model", "path": name} for name in overlay["rewards"]}
    section = overlay["open_ended"] | {"pool": POOL, "held_out": HELD_OUT} | SMALL
    entries = {}
    for name, entry in overlay["regimes"].items():
        entries[name] = entry | {"steps": [2], "responses": 2} | SMALL
        if "start_step" in entry:
            entries[name]["start_step"] = 2
    small = overlay | {"rewards": rewards, "open_ended": section, "regimes": entries}
    few_policies = {"warmup": micro_config["warmup"] | {"steps": [0, 2]}, "ablations": {}, "baselines": {}}
    return merged(micro_config | on_one(micro_config) | few_policies, small)


@pytest.fixture(scope="module")
def project(in_miniature: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished grid."""
    project = Project.create(tmp_path_factory.mktemp("overlay") / "g2d", in_miniature)
    for name in in_miniature["rewards"]:
        reward_model(project.root / name, "Qwen3", head_dim=8, num_key_value_heads=4)
    project.build()
    return project


@pytest.mark.parametrize("base", ["small", "bridging", "paper"])
def test_it_can_be_merged_over_a_configuration(base: str, overlay: dict[str, Any]) -> None:
    config = read(CONFIG / f"{base}.yaml", CONFIG / "overlays/open_ended.yaml")
    assert set(config.regimes) >= set(overlay["regimes"])
    assert set(config.rewards) == {"skywork", "larger"}


def test_an_update_of_both_kinds_has_eleven_open_ended_prompts_of_32(project: Project) -> None:
    rows = pd.read_parquet(project.results / "micro/seed0/both/g2/k2/rollouts.parquet")
    is_open = rows["problem_id"].str.startswith("open-ended-")
    assert rows.assign(is_open=is_open).groupby("step")["is_open"].agg(["sum", "size"]).to_numpy().tolist() == [
        [22, 64],
        [22, 64],
    ]


def test_mathematics_after_wildchat_starts_from_its_policy(project: Project) -> None:
    record = read_json(project.results / "micro/seed0/wildchat-then-math/g2/k2/policy.json")
    assert record["started_from"] == "micro/seed0/wildchat/g2/k2"


def test_the_larger_model_judges_the_replies_of_every_policy(project: Project) -> None:
    table = pd.read_csv(project.results / "tables/win_rates.csv")
    assert set(table["policy"]) == {"dpo", "g2d", "grpo", "both", "wildchat", "wildchat-then-math"}
    assert set(table["n_replies"]) == {8}
    page = (project.results / "report/index.html").read_text()
    assert "the judge (larger)" in page
