"""Open-ended prompts in a finished grid: only new jobs run, and each prompt is judged by its reward."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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


TRAINED = {"train_grpo": 1, "train_semi_online_dpo": 3, "evaluate": 4, "sample_replies": POLICIES}


def test_only_jobs_of_the_prompts_run(extended: tuple[Project, dict[str, int]]) -> None:
    _, planned = extended
    assert without_summaries(planned) == TRAINED | {"load_problems": 2, "check_leakage": 1}


def test_a_finished_grid_with_prompts_has_nothing_left_to_do(project: Project) -> None:
    assert project.planned() == {}


def test_a_changed_reward_trains_and_replies_again(configured: Configure, project: Project) -> None:
    shorter = REWARDS["polite"] | {"max_length": 90}  # the same model
    configured(rewards=REWARDS | {"polite": shorter})
    assert without_summaries(project.planned()) == TRAINED


def test_the_order_of_rewards_is_no_change(configured: Configure, project: Project) -> None:
    configured(rewards=dict(reversed(REWARDS.items())))
    assert without_summaries(project.planned()) == {}


def without_summaries(planned: dict[str, int]) -> dict[str, int]:
    return {rule: n for rule, n in planned.items() if rule not in SUMMARIES}


Configure = Callable[..., None]


@pytest.fixture
def configured(project: Project, micro_config: dict[str, Any]) -> Iterator[Configure]:
    """Change keys of the configuration; it is restored after the test."""

    def configure(**changes: Any) -> None:
        project.configure(with_prompts(micro_config, **changes))

    yield configure
    configure()


@pytest.mark.parametrize(
    ("policy", "share"), [("both-grpo/grpo/g2/k2", 0.5), ("both/g4/k2", 0.25), ("open/g4/k2", 1.0)]
)
def test_each_update_has_its_share_of_open_ended_prompts(project: Project, policy: str, share: float) -> None:
    rows = pd.read_parquet(project.results / "micro/seed0" / policy / "rollouts.parquet")
    assert rows.groupby("step")["problem_id"].apply(open_ended_share).tolist() == [share, share]


def open_ended_share(names: pd.Series) -> float:
    return names.str.startswith("open-ended-").mean()


@pytest.mark.parametrize("policy", ["both-grpo/grpo/g2/k2", "both/g4/k2", "open/g4/k2"])
def test_each_prompt_is_judged_by_the_reward_of_its_kind(project: Project, policy: str) -> None:
    folder = project.results / "micro/seed0" / policy
    rows = pd.read_parquet(folder / "rollouts.parquet")
    is_reply = rows["problem_id"].str.startswith("open-ended-")
    replies, answers = rows[is_reply], rows[~is_reply]
    assert set(replies["verdict"]) == {"no_reference"}
    assert not replies["reward"].isin((0, 1)).any()
    assert (answers["reward"] == (answers["verdict"] == "correct")).all()
    judges = read_json(folder / "policy.json")["settings"]["reward"]
    assert (judges["verifiable"]["reward"], judges["open_ended"]["reward"]) == ("math_verify", "model")


def test_prompts_of_the_pool_are_open_ended(project: Project) -> None:
    problems = read_problems(project.results / "problems/open-ended.jsonl")
    assert {problem.kind for problem in problems} == {"open_ended"}


def replies(project: Project, policy: str) -> pd.DataFrame:
    return pd.read_parquet(project.results / "micro" / policy / "open-ended/rollouts.parquet")


@pytest.fixture
def win_rates(project: Project) -> pd.DataFrame:
    return pd.read_csv(project.results / "tables/win_rates.csv").set_index(["policy", "K", "group_size"])


def test_m0_replies_to_the_held_out_prompts(project: Project) -> None:
    base = replies(project, "base")
    assert len(base) == 16
    assert base["problem_id"].str.startswith("open-ended-held-out-").all()


COMPARED = [(("open", 2, 4), "seed0/open/g4/k2"), (("grpo", 4, 4), "seed0/grpo/g4/k4")]


@pytest.mark.parametrize(("row", "policy"), COMPARED)
def test_a_policy_replies_to_the_prompts_of_m0(project: Project, row: tuple[str, int, int], policy: str) -> None:
    asked = ["problem_id", "sample", "prompt_text"]
    assert replies(project, policy)[asked].equals(replies(project, "base")[asked])


@pytest.mark.parametrize(("row", "policy"), COMPARED)
def test_a_win_rate_counts_replies_that_score_higher_than_those_of_m0(
    project: Project, win_rates: pd.DataFrame, row: tuple[str, int, int], policy: str
) -> None:
    ours, base = replies(project, policy), replies(project, "base")
    won = (ours["reward"] > base["reward"]) + 0.5 * (ours["reward"] == base["reward"])
    assert win_rates.loc[row, "win_rate"] == pytest.approx(won.mean(), abs=1e-5)
    assert win_rates.loc[row, "length"] == pytest.approx(ours["completion_text"].str.len().mean(), rel=1e-5)


def test_win_rates_of_all_policies_are_one_family(win_rates: pd.DataFrame) -> None:
    assert len(win_rates) == POLICIES - 1  # M0 is the reference
    assert set(win_rates["family_size"]) == {POLICIES - 1}


def test_a_win_rate_names_the_prompts_of_all_stages(win_rates: pd.DataFrame) -> None:
    assert win_rates.loc[("open", 2, 4), "prompts"] == "open_ended"
    assert win_rates.loc[("then", 2, 4), "prompts"] == "open_ended, then verifiable"


def test_a_policy_pays_for_its_replies(project: Project) -> None:
    costs = pd.read_csv(project.results / "tables/cost.csv").query("stage == 'sample_replies'")
    assert set(costs["n_jobs"]) == {1}
    [tokens] = costs.query("policy == 'open' and K == 2")["tokens_generated"]
    assert tokens == replies(project, "seed0/open/g4/k2")["token_count"].sum()


def test_the_page_says_who_is_preferred_to_m0(project: Project) -> None:
    page = (project.results / "report/index.html").read_text()
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
