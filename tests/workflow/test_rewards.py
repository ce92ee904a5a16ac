"""Other rewards in a finished grid: what they train, what is judged again, and the control sentence."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

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


def test_only_jobs_of_the_rewards_run_and_a_changed_reward_runs_dependent_jobs(
    extended: tuple[Project, dict[str, int]], micro_config: dict[str, Any]
) -> None:
    project, planned = extended
    trained = {"train_grpo": 1, "train_dpo": 5, "train_semi_online_dpo": 2, "train_rft": 1, "evaluate": 9}
    assert planned == trained | {"harvest_rollouts": 5, "build_pairs": 5} | SUMMARIES
    assert project.planned() == {}
    changed = with_rewards(micro_config) | {"rewards": REWARDS | {"coin": {"reward": "random", "p": 0.4}}}
    again = {"train_grpo": 1, "harvest_rollouts": 2, "build_pairs": 2, "train_dpo": 2, "evaluate": 3}
    try:
        project.configure(changed)
        assert project.planned() == again | SUMMARIES
    finally:
        project.configure(with_rewards(micro_config))


def test_the_harvest_of_m0_is_judged_again_and_not_drawn(project: Project) -> None:
    results = project.results
    seed0 = results / "micro/seed0"
    main = pd.read_parquet(seed0 / "harvest/g0/k0/rollouts.parquet")
    assert "reward_status" not in main
    coins = pd.read_parquet(seed0 / "on-coin/harvest/g0/k0/rollouts.parquet")
    drawn = ["problem_id", "sample", "completion_text", "verdict", "policy_id", "seed"]
    assert coins[drawn].equals(main[drawn])
    assert set(coins["reward"]) == {0, 1}
    assert (coins["reward"] != main["reward"]).any()
    judged = read_json(seed0 / "on-coin/harvest/g0/k0/informativeness.json")
    assert judged["mean_reward"] == coins["reward"].mean()
    assert judged["pass_at_1"] == read_json(seed0 / "harvest/g0/k0/informativeness.json")["pass_at_1"]
    billed = pd.read_csv(results / "tables/cost.csv").query("policy == 'on-coin/dpo' and K == 0").set_index("stage")
    assert billed.loc["harvest_rollouts", "tokens_generated"] == main["token_count"].sum()  # paid for once


def test_a_scalar_reward_of_a_file_pairs_best_with_worst(project: Project) -> None:
    folder = project.results / "micro/seed0/on-short/harvest/g0/k0"
    lengths = pd.read_parquet(folder / "rollouts.parquet")
    assert (lengths["reward"] == -lengths["completion_text"].str.len() / 10).all()
    for pair in read_pairs(folder / "pairs.jsonl"):
        texts = lengths[lengths["problem_id"] == pair["problem_id"]].set_index("sample")["completion_text"].str.len()
        assert texts[pair["chosen_sample"]] == texts.min() < texts.max() == texts[pair["rejected_sample"]]


def test_a_reward_model_judges_and_other_weights_run_its_jobs_again(project: Project) -> None:
    folder = project.results / "micro/seed0/on-liked/harvest/g0/k0"
    rows = pd.read_parquet(folder / "rollouts.parquet")
    problems = {p.problem_id: p for p in read_problems(project.results / "micro/calibration/train.jsonl")}
    conversations = [(problems[row.problem_id].prompt, row.completion_text) for row in rows.itertuples()]
    scores = [score.value for score in Scorer(project.root / "liked", batch_size=1)(conversations)]
    assert list(rows["reward"]) == pytest.approx(scores, abs=1e-5)
    pair = read_pairs(folder / "pairs.jsonl")[0]
    rewards = rows[rows["problem_id"] == pair["problem_id"]].set_index("sample")["reward"]
    assert (rewards[pair["chosen_sample"]], rewards[pair["rejected_sample"]]) == (rewards.max(), rewards.min())
    weights = project.root / "liked/model.safetensors"
    before = weights.read_bytes()
    again = {"harvest_rollouts": 1, "build_pairs": 1, "train_dpo": 1, "evaluate": 1}
    try:
        weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert project.planned() == again | SUMMARIES
    finally:
        weights.write_bytes(before)
    assert project.planned() == {}


def test_records_and_rows_name_the_reward(project: Project) -> None:
    seed0 = project.results / "micro/seed0"
    wrong = pd.read_parquet(seed0 / "on-wrong/g4/k2/rollouts.parquet")
    assert ((wrong["reward"] == 1) == (wrong["verdict"] == "incorrect")).all()
    record = read_json(seed0 / "on-wrong/g4/k2/policy.json")
    assert record["settings"]["reward"] == {"reward": "wrong", "version": 1}
    assert read_json(seed0 / "on-coin/grpo/g2/k4/policy.json")["settings"]["reward"]["p"] == 0.5
    card = (seed0 / "on-coin/dpo/g2/k4/adapter/README.md").read_text()
    assert "on random rewards (p = 0.5) instead of the truth" in card


def test_a_control_is_compared_with_its_policy_of_the_true_reward(project: Project) -> None:
    results = project.results
    compared = pd.read_csv(results / "tables/comparisons.csv").query("benchmark == 'arithmetic'")
    tested = set(zip(compared.policy, compared.K, compared.reference, strict=True))
    truths = [("on-coin/dpo", 0, "dpo"), ("on-coin/dpo", 4, "g2d"), ("on-coin/grpo", 4, "grpo")]
    truths += [(name, 0, "dpo") for name in ("on-liked/dpo", "on-most/dpo", "on-short/dpo")]
    assert tested >= {*truths, ("on-wrong", 2, "fresh")}
    assert "reward=coin" in set(pd.read_csv(results / "tables/main.csv")["change"])
    assert "rewards of short.py" in (results / "report/index.html").read_text()


def test_the_pair_browser_shows_rewards_and_verdicts(project: Project) -> None:
    results = project.results
    page = unescape((results / "report/index.html").read_text())
    harvests = page.partition('<select id="pair-series">')[2].partition("</select>")[0]
    labels = re.findall(r'<option value="\d+">(.*?)</option>', harvests)
    series = {label.partition(":")[0].removeprefix("micro, seed 0"): number for number, label in enumerate(labels)}
    assert labels[0] == "micro, seed 0, G=2"
    assert set(series) == {", G=2", ", G=2, on-coin", ", on-most", ", on-short", ", on-liked"}
    assert "micro, seed 0, G=2, on-coin: random rewards (p = 0.5)" in labels
    card = re.compile(
        r'<article class="card (\w+)">.*?<span class="badge (\w+)">.*?reward (\S+) · rollout (\d+) ·', re.S
    )
    for label, name in ((", G=2, on-coin", "on-coin"), (", on-short", "on-short")):
        rows = pd.read_parquet(results / f"micro/seed0/{name}/harvest/g0/k0/rollouts.parquet")
        rows = rows.set_index(["problem_id", "sample"])
        stories = re.findall(
            rf'<template data-series="{series[label]}" data-label="(\S+) .*?>(.*?)</template>', page, re.S
        )
        assert len(stories) == 10
        for problem, story in stories:
            first = story.partition('<div class="step" data-step="1"')[0]  # K=0
            shown = card.findall(first)
            assert [role for role, *_ in shown] in (["chosen", "rejected"], ["example"])
            for _, badge, reward, sample in shown:
                row = rows.loc[(problem, int(sample))]
                assert (badge == "right") == (row["verdict"] == "correct")
                assert float(reward) == pytest.approx(row["reward"], rel=0.01)
            if len(shown) == 2:
                assert float(shown[0][2]) > float(shown[1][2])


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


def test_a_main_reward_trains_the_grid_and_the_page_is_about_it(
    micro_grid: Project, micro_config: dict[str, Any], tmp_path: Path
) -> None:
    project = micro_grid.copied(tmp_path / "g2d")
    (project.root / "short.py").write_text(SHORT)
    control = {"rewards": {"truth": {"reward": "math_verify"}}}
    control |= {"ablations": {"truth": {"steps": [0], "reward": "truth"}}}
    own = {"warmup": micro_config["warmup"] | {"steps": [0, 2], "reward": {"file": "short.py"}}}
    project.extended(micro_config | on_one(micro_config) | own | control | {"baselines": {"grpo_group_sizes": [2]}})
    seed0, truth = project.results / "micro/seed0", micro_grid.results / "micro/seed0"
    for file in ("harvest/g0/k0", "harvest/g2/k2"):
        rows = pd.read_parquet(seed0 / file / "rollouts.parquet")
        assert (rows["reward"] == -rows["completion_text"].str.len() / 10).all()
    # The verifier's verdicts are there for the ablation, which has the pairs of the grid without a reward.
    pairs = "harvest/g0/k0/pairs.jsonl"
    assert (seed0 / "truth" / pairs).read_text() == (truth / pairs).read_text()
    assert (seed0 / pairs).read_text() != (truth / pairs).read_text()
    page = unescape((project.results / "report/index.html").read_text())
    assert "on arithmetic (greedy answers, trained on rewards of short.py" in page
    assert "GRPO and the pairs are trained on rewards of short.py instead of correctness." in page
