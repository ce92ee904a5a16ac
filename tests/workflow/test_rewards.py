"""Other rewards in a finished grid: what they train, what is judged again, and the control sentence."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.analysis.informativeness import informativeness
from g2d.checks.load import load
from g2d.jobs.files import read_json
from g2d.problems import read_problems
from g2d.rewards.model import Scorer
from g2d.rollouts.pairs import read_pairs
from g2d.settings import ConfigError
from tests.rewards.models import reward_model
from tests.workflow.conftest import Project
from tests.workflow.micro import RFT, SEMI_ONLINE, SUMMARIES, on_one

REWARDS = {
    "coin": {"reward": "random"},
    "wrong": {"reward": "wrong"},
    "short": {"reward": "python", "file": "short.py"},
    "liked": {"reward": "model", "path": "liked"},
}
SHORT = "def reward(completions):\n    return [-len(text) / 10 for text in completions]\n"
ABLATIONS = {
    "on-coin": {"steps": [0, 4], "reward": "coin", "policies": ["dpo", "grpo"]},
    "on-most": {"steps": [0], "reward": "wrong"},
    "on-short": {"steps": [0], "reward": "short"},
    "on-liked": {"steps": [0], "reward": "liked"},
}
ENTRIES = {
    "fresh": SEMI_ONLINE | {"steps": [2]},
    "on-wrong": SEMI_ONLINE | {"steps": [2], "reward": "wrong"},
    "rft": RFT | {"steps": [0]},
}


def with_rewards(config: dict[str, Any], ablations: Any = ABLATIONS, entries: Any = ENTRIES) -> dict[str, Any]:
    return config | on_one(config) | {"rewards": REWARDS, "ablations": ablations, "regimes": entries}


@pytest.fixture(scope="module")
def extended(
    micro_grid: Project, micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Project, dict[str, int]]:
    """A copy of the finished grid with rewards, and the added jobs."""
    project = micro_grid.copied(tmp_path_factory.mktemp("rewarded") / "g2d")
    (project.root / "short.py").write_text(SHORT)
    reward_model(project.root / "liked")
    return project, project.extended(with_rewards(micro_config))


@pytest.fixture(scope="module")
def project(extended: tuple[Project, dict[str, int]]) -> Project:
    return extended[0]


@pytest.fixture(scope="module")
def seed0(project: Project) -> Path:
    """The folder of its policies."""
    return project.results / "micro/seed0"


def test_only_jobs_of_the_rewards_run(extended: tuple[Project, dict[str, int]]) -> None:
    _, planned = extended
    added = {
        "train_grpo": 1,
        "harvest_rollouts": 5,
        "build_pairs": 5,
        "train_dpo": 5,
        "train_semi_online_dpo": 2,
        "train_rft": 1,
        "evaluate": 9,
    }
    assert planned == added | SUMMARIES


def test_a_finished_grid_with_rewards_has_nothing_left_to_do(project: Project) -> None:
    assert project.planned() == {}


def test_a_changed_reward_runs_dependent_jobs(project: Project, micro_config: dict[str, Any]) -> None:
    changed = REWARDS | {"coin": {"reward": "random", "p": 0.4}}
    dependent = {"train_grpo": 1, "harvest_rollouts": 2, "build_pairs": 2, "train_dpo": 2, "evaluate": 3}
    try:
        project.configure(with_rewards(micro_config) | {"rewards": changed})
        assert project.planned() == dependent | SUMMARIES
    finally:
        project.configure(with_rewards(micro_config))


DRAWN = ["problem_id", "sample", "completion_text", "verdict", "policy_id", "seed"]


def test_the_harvest_of_m0_is_judged_again_and_not_drawn(seed0: Path) -> None:
    main = pd.read_parquet(seed0 / "harvest/g0/k0/rollouts.parquet")
    coins = pd.read_parquet(seed0 / "on-coin/harvest/g0/k0/rollouts.parquet")
    assert coins[DRAWN].equals(main[DRAWN])
    assert set(coins["reward"]) == {0, 1}
    assert (coins["reward"] != main["reward"]).any()


def test_only_a_harvest_that_another_reward_judged_has_the_status_of_rewards(seed0: Path) -> None:
    assert "reward_status" in pd.read_parquet(seed0 / "on-coin/harvest/g0/k0/rollouts.parquet")
    assert "reward_status" not in pd.read_parquet(seed0 / "harvest/g0/k0/rollouts.parquet")


def test_pass_at_1_is_of_verdicts_and_the_mean_reward_of_rewards(seed0: Path) -> None:
    coins = pd.read_parquet(seed0 / "on-coin/harvest/g0/k0/rollouts.parquet")
    judged = informativeness(coins)
    assert judged.mean_reward == coins["reward"].mean()
    assert judged.pass_at_1 == informativeness(pd.read_parquet(seed0 / "harvest/g0/k0/rollouts.parquet")).pass_at_1


def test_a_harvest_that_is_judged_twice_is_paid_for_once(project: Project, seed0: Path) -> None:
    main = pd.read_parquet(seed0 / "harvest/g0/k0/rollouts.parquet")
    costs = pd.read_csv(project.results / "tables/cost.csv").query("policy == 'on-coin/dpo' and K == 0")
    [harvest] = costs.query("stage == 'harvest_rollouts'").itertuples()
    assert harvest.tokens_generated == main["token_count"].sum()


def test_a_scalar_reward_of_a_file_pairs_best_with_worst(seed0: Path) -> None:
    folder = seed0 / "on-short/harvest/g0/k0"
    rows = pd.read_parquet(folder / "rollouts.parquet")
    lengths = rows["completion_text"].str.len()
    assert (rows["reward"] == -lengths / 10).all()
    for pair in read_pairs(folder / "pairs.jsonl"):
        group = rows[rows["problem_id"] == pair["problem_id"]].set_index("sample")["completion_text"].str.len()
        assert group[pair["chosen_sample"]] == group.min()
        assert group[pair["rejected_sample"]] == group.max()
        assert group.min() < group.max()


def test_a_reward_model_judges_every_rollout(project: Project, seed0: Path) -> None:
    rows = pd.read_parquet(seed0 / "on-liked/harvest/g0/k0/rollouts.parquet")
    problems = {p.problem_id: p for p in read_problems(project.results / "micro/calibration/train.jsonl")}
    conversations = [(problems[row.problem_id].prompt, row.completion_text) for row in rows.itertuples()]
    scores = [score.value for score in Scorer(project.root / "liked", batch_size=1)(conversations)]
    assert list(rows["reward"]) == pytest.approx(scores, abs=1e-5)


def test_a_reward_model_pairs_best_with_worst(seed0: Path) -> None:
    folder = seed0 / "on-liked/harvest/g0/k0"
    rows = pd.read_parquet(folder / "rollouts.parquet")
    pair = read_pairs(folder / "pairs.jsonl")[0]
    rewards = rows[rows["problem_id"] == pair["problem_id"]].set_index("sample")["reward"]
    assert rewards[pair["chosen_sample"]] == rewards.max()
    assert rewards[pair["rejected_sample"]] == rewards.min()


def test_other_weights_of_a_reward_model_run_its_jobs_again(project: Project) -> None:
    weights = project.root / "liked/model.safetensors"
    before = weights.read_bytes()
    again = {"harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 1}
    try:
        weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert project.planned() == again | SUMMARIES
    finally:
        weights.write_bytes(before)
    assert project.planned() == {}


def test_the_reward_wrong_is_1_for_incorrect_rollouts(seed0: Path) -> None:
    rows = pd.read_parquet(seed0 / "on-wrong/g4/k2/rollouts.parquet")
    assert ((rows["reward"] == 1) == (rows["verdict"] == "incorrect")).all()


def test_the_record_of_a_policy_has_its_reward(seed0: Path) -> None:
    wrong = read_json(seed0 / "on-wrong/g4/k2/policy.json")
    coin = read_json(seed0 / "on-coin/grpo/g2/k4/policy.json")
    assert wrong["settings"]["reward"] == {"reward": "wrong", "version": 1}
    assert coin["settings"]["reward"]["p"] == 0.5


def test_a_control_is_compared_with_its_policy_of_the_true_reward(project: Project) -> None:
    compared = pd.read_csv(project.results / "tables/comparisons.csv")
    assert set(zip(compared["policy"], compared["K"], compared["reference"], strict=True)) >= {
        ("on-coin/dpo", 0, "dpo"),
        ("on-coin/dpo", 4, "g2d"),
        ("on-coin/grpo", 4, "grpo"),
        ("on-liked/dpo", 0, "dpo"),
        ("on-most/dpo", 0, "dpo"),
        ("on-short/dpo", 0, "dpo"),
        ("on-wrong", 2, "fresh"),
    }


def test_a_row_of_a_control_has_its_reward(project: Project) -> None:
    assert "reward=coin" in set(pd.read_csv(project.results / "tables/main.csv")["change"])


def test_the_page_names_the_file_of_a_reward(project: Project) -> None:
    assert "rewards of short.py" in (project.results / "report/index.html").read_text()


CARD = re.compile(r'<article class="card (\w+)">.*?<span class="badge (\w+)">.*?reward (\S+) · rollout (\d+) ·', re.S)


@pytest.fixture
def page(project: Project) -> str:
    return unescape((project.results / "report/index.html").read_text())


def labels_of(page: str) -> list[str]:
    """The harvests that the pair browser offers."""
    harvests = page.partition('<select id="pair-series">')[2].partition("</select>")[0]
    return re.findall(r'<option value="\d+">(.*?)</option>', harvests)


def test_the_pair_browser_has_a_harvest_of_each_reward(page: str) -> None:
    harvests = [label.partition(":")[0] for label in labels_of(page)]
    assert harvests[0] == "micro, seed 0, G=2"
    assert sorted(harvests[1:]) == [
        "micro, seed 0, G=2, on-coin",
        "micro, seed 0, on-liked",
        "micro, seed 0, on-most",
        "micro, seed 0, on-short",
    ]
    assert "micro, seed 0, G=2, on-coin: random rewards (p = 0.5)" in labels_of(page)


@pytest.mark.parametrize(("label", "ablation"), [("G=2, on-coin", "on-coin"), ("on-short", "on-short")])
def test_the_pair_browser_shows_rewards_and_verdicts(seed0: Path, page: str, label: str, ablation: str) -> None:
    labels = [text.partition(":")[0] for text in labels_of(page)]
    number = labels.index(f"micro, seed 0, {label}")
    rows = pd.read_parquet(seed0 / ablation / "harvest/g0/k0/rollouts.parquet").set_index(["problem_id", "sample"])
    problems = re.findall(rf'<template data-series="{number}" data-label="(\S+) .*?>(.*?)</template>', page, re.S)
    assert len(problems) == 10
    for problem, steps in problems:
        cards = CARD.findall(steps.partition('<div class="step" data-step="1"')[0])  # of K=0
        assert [role for role, *_ in cards] in (["chosen", "rejected"], ["example"])
        for _, badge, reward, sample in cards:
            row = rows.loc[(problem, int(sample))]
            assert (badge == "right") == (row["verdict"] == "correct")
            assert float(reward) == pytest.approx(row["reward"], rel=0.01)
        if len(cards) == 2:
            chosen, rejected = cards
            assert float(chosen[2]) > float(rejected[2])


def test_unused_rewards_plan_no_job(micro_grid: Project, micro_config: dict[str, Any]) -> None:
    try:
        micro_grid.configure(micro_config | {"rewards": {"coin": {"reward": "random"}}})
        assert set(micro_grid.planned()) <= set(SUMMARIES)
    finally:
        micro_grid.configure(micro_config)


@pytest.mark.parametrize(
    ("ablation", "message"),
    [
        ({"reward": "nobody"}, r"ablations.x.reward: .*\(coin, wrong, short\)"),
        ({"reward": "coin", "steps": [0], "policies": ["grpo"]}, "ablations.x: at K=0 "),
        ({"reward": "coin", "steps": [0], "dpo": {"start": "warmup"}}, "ablations.x.*at K=0 "),
        ({}, "ablations.x: "),
    ],
)
def test_a_mistake_in_an_ablation_is_named(
    micro_config: dict[str, Any], ablation: dict[str, Any], message: str
) -> None:
    rewards = {name: REWARDS[name] for name in ("coin", "wrong")} | {"short": {"reward": "format"}}
    config = micro_config | {"rewards": rewards}
    load(config | {"ablations": {"x": {"steps": [3], "reward": "coin"}}})  # a K that only the ablation has
    with pytest.raises(ConfigError, match=message):
        load(config | {"ablations": {"x": {"steps": [2]} | ablation}})


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"reward": "rnadom"}, "rewards.coin.reward: 'rnadom'"),
        ({"reward": "random", "p": 1}, "rewards.coin.p: "),
        ({"reward": "random", "q": 1}, "rewards.coin.q: unknown key"),
        ({"p": 0.5}, "rewards.coin.reward: missing"),
    ],
)
def test_a_mistake_in_a_reward_is_named(micro_config: dict[str, Any], reward: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(micro_config | {"rewards": {"coin": reward}})


@pytest.fixture(scope="module")
def own_main_reward(
    micro_grid: Project, micro_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Project:
    """The grid to K=2 with a reward of the user's for the warm-up, and an ablation with the true reward at K=0."""
    project = micro_grid.copied(tmp_path_factory.mktemp("own") / "g2d")
    (project.root / "short.py").write_text(SHORT)
    changes = {
        "warmup": micro_config["warmup"] | {"steps": [0, 2], "reward": {"file": "short.py"}},
        "rewards": {"truth": {"reward": "math_verify"}},
        "ablations": {"truth": {"steps": [0], "reward": "truth"}},
        "baselines": {"grpo_group_sizes": [2]},
    }
    project.extended(micro_config | on_one(micro_config) | changes)
    return project


@pytest.mark.parametrize("harvest", ["g0/k0", "g2/k2"])
def test_a_main_reward_judges_all_harvests(own_main_reward: Project, harvest: str) -> None:
    rows = pd.read_parquet(own_main_reward.results / f"micro/seed0/harvest/{harvest}/rollouts.parquet")
    assert (rows["reward"] == -rows["completion_text"].str.len() / 10).all()


def test_the_control_of_a_main_reward_has_the_pairs_of_the_grid_without_it(
    own_main_reward: Project, micro_grid: Project
) -> None:
    """The verifier's verdicts are still there."""
    seed0 = own_main_reward.results / "micro/seed0"
    without = (micro_grid.results / "micro/seed0/harvest/g0/k0/pairs.jsonl").read_text()
    assert (seed0 / "truth/harvest/g0/k0/pairs.jsonl").read_text() == without
    assert (seed0 / "harvest/g0/k0/pairs.jsonl").read_text() != without


def test_the_page_says_that_the_grid_was_trained_on_a_main_reward(own_main_reward: Project) -> None:
    page = unescape((own_main_reward.results / "report/index.html").read_text())
    assert "on arithmetic (greedy answers, trained on rewards of short.py" in page
    assert "GRPO and the pairs are trained on rewards of short.py instead of correctness." in page
