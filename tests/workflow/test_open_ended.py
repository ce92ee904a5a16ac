"""Open-ended prompts in a finished grid: only new jobs run, and each prompt is judged by its reward."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from g2d.checks.load import load
from g2d.jobs.files import read_json
from g2d.problems import read_problems
from g2d.settings import ConfigError
from tests.configs import SYNTHETIC
from tests.workflow.conftest import Project
from tests.workflow.micro import (
    ASKED,
    REWARDS,
    SECTION,
    SEMI_ONLINE,
    SUMMARIES,
    copy_with_prompts,
    with_prompts,
)

POLICIES = 10  # M0, DPO at K = 0, 2, 4, GRPO with G = 2 and 4, four on open-ended prompts


@pytest.fixture(scope="module")
def extended(micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, int]]:
    return copy_with_prompts(micro_config, tmp_path_factory.mktemp("asked") / "g2d")


@pytest.fixture(scope="module")
def project(extended: tuple[Project, dict[str, int]]) -> Project:
    return extended[0]


def test_only_jobs_of_the_prompts_run_and_a_changed_reward_runs_its_jobs(
    extended: tuple[Project, dict[str, int]], micro_config: dict[str, Any]
) -> None:
    project, planned = extended
    added = {"load_problems": 2, "check_leakage": 1}
    judged = {"draw_replies": POLICIES}
    trained = {"train_grpo": 1, "train_semi_online_dpo": 3, "evaluate": 4}
    assert {name: n for name, n in planned.items() if name not in SUMMARIES} == added | trained | judged
    assert project.planned() == {}
    dearer = {"polite": REWARDS["polite"] | {"length_penalty": 2.0}}  # the same model
    try:
        project.configure(with_prompts(micro_config, rewards=REWARDS | dearer))
        assert {name: n for name, n in project.planned().items() if name not in SUMMARIES} == trained | judged
        project.configure(with_prompts(micro_config, rewards=dict(reversed(REWARDS.items()))))
        assert set(project.planned()) <= set(SUMMARIES)
    finally:
        project.configure(with_prompts(micro_config))


@pytest.mark.parametrize(
    ("policy", "share"), [("both-grpo/grpo/g2/k2", 0.5), ("both/g4/k2", 0.25), ("open/g4/k2", 1.0)]
)
def test_each_prompt_is_judged_by_the_reward_of_its_kind(project: Project, policy: str, share: float) -> None:
    results = project.results
    folder = results / "micro/seed0" / policy
    rows = pd.read_parquet(folder / "rollouts.parquet")
    replies = rows["problem_id"].str.startswith("open-ended-")
    assert replies.groupby(rows["step"]).mean().tolist() == [share, share]
    assert (rows.loc[replies, "verdict"] == "no_reference").all()
    truth = rows[~replies]
    assert (truth["reward"] == (truth["verdict"] == "correct")).all()
    assert not rows.loc[replies, "reward"].isin((0, 1)).any()
    judges = read_json(folder / "policy.json")["settings"]["reward"]
    assert (judges["verifiable"]["reward"], judges["open_ended"]["reward"]) == ("math_verify", "model")
    assert {problem.kind for problem in read_problems(results / "problems/open-ended.jsonl")} == {"open_ended"}


def test_policies_and_m0_reply_to_the_same_prompts_and_the_table_counts_who_is_preferred(project: Project) -> None:
    results = project.results
    replies = {
        name: pd.read_parquet(results / "micro" / name / "open-ended/rollouts.parquet")
        for name in ("base", "seed0/open/g4/k2", "seed0/grpo/g4/k4")
    }
    base = replies["base"]
    assert len(base) == 16
    assert base["problem_id"].str.startswith("open-ended-held-out-").all()
    table = pd.read_csv(results / "tables/win_rates.csv").set_index(["policy", "K", "group_size"])
    assert len(table) == POLICIES - 1
    for (policy, k, group_size), name in {
        ("open", 2, 4): "seed0/open/g4/k2",
        ("grpo", 4, 4): "seed0/grpo/g4/k4",
    }.items():
        frame, row = replies[name], table.loc[(policy, k, group_size)]
        assert frame[["problem_id", "sample", "prompt_text"]].equals(base[["problem_id", "sample", "prompt_text"]])
        won = (frame["reward"] > base["reward"]) + 0.5 * (frame["reward"] == base["reward"])
        assert row["win_rate"] == pytest.approx(won.mean(), abs=1e-5)
        assert row["length"] == pytest.approx(frame["completion_text"].str.len().mean(), rel=1e-5)
    billed = pd.read_csv(results / "tables/cost.csv").query("stage == 'draw_replies'")
    assert set(billed["n_jobs"]) == {1}
    [tokens] = billed.query("policy == 'open' and K == 2")["tokens_generated"]
    assert tokens == replies["seed0/open/g4/k2"]["token_count"].sum()
    assert table.loc[("open", 2, 4), "prompts"] == "open_ended"
    assert set(table["family_size"]) == {POLICIES - 1}
    assert table.loc[("then", 2, 4), "prompts"] == "open_ended, then verifiable"
    card = (results / "micro/seed0/both-grpo/grpo/g2/k2/adapter/README.md").read_text()
    assert "on verifiable and open-ended prompts together" in card
    page = (results / "report/index.html").read_text()
    assert "Win rate against M0" in page
    assert "open (K=2) of micro, trained on open-ended prompts, is preferred to M0 in" in page


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"open_ended": None}, "regimes.both.prompts"),
        ({"rewards": {}}, "open_ended.reward"),
        ({"rewards": REWARDS | {"polite": {"reward": "wrong"}}}, "open_ended.reward"),
        ({"open_ended": SECTION | {"pool": SYNTHETIC | {"split": "train"}}}, "open_ended.pool.family"),
        ({"open_ended": SECTION | {"judge": "me"}}, "open_ended.judge"),
    ],
)
def test_a_mistake_is_named(micro_config: dict[str, Any], changes: dict[str, Any], key: str) -> None:
    load(micro_config | ASKED)
    with pytest.raises(ConfigError, match=re.escape(f"{key}: ")):
        load(micro_config | ASKED | changes)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"prompts": "mixed", "sync_every": "pass"}, "regimes.x.sync_every: "),
        ({"prompts": "mixed", "open_ended_share": 0.1}, "open_ended_share=0.1 of 8 prompts are 0.8: write 0.125"),
        ({"prompts": "mixed", "retire": {"after": 2}}, "regimes.x: prompts: mixed: "),
        ({"open_ended_share": 0.25}, "regimes.x.open_ended_share: "),
        ({"prompts": "open_ended", "reward": "dear"}, "regimes.x: reward: "),
    ],
)
def test_a_mistake_in_an_online_entry_is_named(micro_config: dict[str, Any], entry: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        load(micro_config | ASKED | {"regimes": {"x": SEMI_ONLINE | entry}})


@pytest.mark.parametrize(
    ("ablation", "key"),
    [
        ({"policies": ["grpo"], "warmup": {"retire": {"after": 2}}}, "ablations.x.prompts: "),
        ({}, "ablations.x: policies: "),
        ({"open_ended_share": 0.3, "policies": ["grpo"]}, "ablations.x.open_ended_share=0.3 of 8 prompts are 2.4"),
    ],
)
def test_a_mistake_in_an_ablation_is_named(micro_config: dict[str, Any], ablation: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        load(micro_config | ASKED | {"ablations": {"x": {"steps": [2], "prompts": "mixed"} | ablation}})
