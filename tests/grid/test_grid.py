"""The grid as a function of the configuration: what exists, where, and what continues what."""

from __future__ import annotations

from pathlib import Path

import yaml

from g2d.checks.load import load, read
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.regimes.grpo.keys import Warmup
from g2d.tables.reads import shown_harvests
from tests.configs import CONFIG, MINIMAL

PAPER = read(Path(__file__).parents[2] / "config/paper.yaml")


def small(**changes: object) -> Config:
    return load(MINIMAL | {"seeds": [0], "warmup": {"steps": [0, 2, 4], "horizon": 8}} | changes)


def warmup_of(grid: Grid, run: str) -> Warmup:
    settings = grid.runs["demo"][run].settings
    assert isinstance(settings, Warmup)
    return settings


def test_papers_table_1_has_nine_rows_per_model() -> None:
    rows = [
        (p.label, p.group_size, p.k)
        for p in Grid(PAPER).policies
        if p.model == "qwen2.5-7b-instruct" and p.seed in (None, 0) and p.run_name in ("base", "dpo", "grpo")
    ]
    assert rows == [
        ("base", 0, 0),
        ("dpo", 0, 0),
        *[("g2d", 2, k) for k in (150, 300, 500, 700, 1000)],
        ("grpo", 2, 1000),
        ("grpo", 4, 1000),
    ]


def test_a_chain_continues_the_largest_smaller_k() -> None:
    chain = Grid(small(warmup={"steps": [0, 2, 4, 6]})).runs["demo"]["grpo"]
    assert [chain.step_before(2, k) for k in (2, 4, 6)] == [None, 2, 4]


def test_independent_runs_continue_no_checkpoint() -> None:
    config = small(warmup={"steps": [0, 2, 4], "schedule": "per_k"})
    assert Grid(config).runs["demo"]["grpo"].step_before(2, 4) is None
    assert [config.warmup.at(2, k).horizon for k in (2, 4)] == [2, 4]


def test_a_chains_settings_do_not_depend_on_the_grid() -> None:
    more = small(warmup={"steps": [0, 2, 3, 4], "horizon": 8})
    assert small().warmup.at(2, 2) == more.warmup.at(2, 2)


def test_without_k_0_there_is_no_plain_dpo() -> None:
    regimes = {(p.label, p.k) for p in Grid(small(warmup={"steps": [2], "horizon": 8})).policies}
    assert regimes == {("base", 0), ("g2d", 2), ("grpo", 2)}


# ---------------------------------------------------------------------------------------------- early-stopping warm-up

AUTO = {"steps": [0, 2, 4], "horizon": 8, "group_sizes": [2, 4], "auto": {"every": 2}}


def test_one_policy_per_group_size_and_seed_stops_early() -> None:
    config = small(warmup=AUTO)
    folders = [p.folder for p in Grid(config).policies if p.label == "g2d-auto"]
    assert folders == ["demo/seed0/auto/dpo/g2/k8", "demo/seed0/auto/dpo/g4/k8"]
    assert [p.folder for p in Grid(config).automatic_warmups] == [folder.replace("dpo", "grpo") for folder in folders]
    assert Grid(config).variants == ["auto"]
    fixed = small(warmup=AUTO | {"auto": None})
    assert Grid(config).harvests == Grid(fixed).harvests
    assert config.warmup.at(2, 4) == fixed.warmup.at(2, 4)


def test_an_ablated_warmup_does_not_stop_early() -> None:
    config = small(warmup=AUTO, ablations={"alone": {"steps": [2], "warmup": {"schedule": "per_k"}}})
    assert warmup_of(Grid(config), "alone/grpo").auto is None
    assert sorted(Grid(config).variants) == ["alone", "auto"]


def test_it_can_be_the_setting_of_one_model() -> None:
    models = {"demo": {"source": "embedded"}, "other": {"source": "embedded", "settings": {"warmup": {"auto": {}}}}}
    config = small(models=models, warmup={"steps": [0, 2], "horizon": 500})
    assert [p.model for p in Grid(config).policies if p.label == "g2d-auto"] == ["other"]


# --------------------------------------------------------------------------------------------------------- ablations

CONFOUNDERS = load(
    yaml.safe_load((CONFIG / "paper.yaml").read_text())
    | {"ablations": yaml.safe_load((CONFIG / "overlays/confounders.yaml").read_text())["ablations"]}
)


def test_an_ablation_of_every_k_follows_the_grid() -> None:
    by_name = Grid(CONFOUNDERS).runs["qwen2.5-7b-instruct"]
    assert by_name["n-matched"].points == ((0, 0), *((2, k) for k in PAPER.warmup.steps[1:]))
    assert by_name["from-warmup"].points[0] == (2, 150)  # there is no warm-up at K=0


def test_an_ablated_warmup_has_separate_folders_and_a_separate_chain() -> None:
    config = small(ablations={"long": {"steps": [3, 6], "warmup": {"max_completion_length": 64, "group_sizes": [4]}}})
    folders = [policy.folder for policy in Grid(config).policies if policy.run_name == "long/dpo"]
    assert folders == ["demo/seed0/long/dpo/g4/k3", "demo/seed0/long/dpo/g4/k6"]
    grid = Grid(config)
    assert grid.runs["demo"]["long/grpo"].step_before(4, 6) == 3
    assert grid.runs["demo"]["grpo"].step_before(4, 4) is None  # a baseline that is trained at one K only
    main = warmup_of(grid, "grpo").at(4, 3).params()
    longer = warmup_of(grid, "long/grpo").at(4, 3).params()
    assert {key for key in main if main[key] != longer[key]} == {"max_completion_length"}  # not the horizon


def test_policies_of_the_confounders_are_named_by_their_changes() -> None:
    runs = Grid(CONFOUNDERS).any_runs
    assert runs["equal-steps"].changes == {"max_steps": 128}
    assert runs["per-k/dpo"].changes == runs["per-k/grpo"].changes == {"warmup.schedule": "per_k"}


def test_changes_of_the_warmup_are_in_all_names_of_an_ablation() -> None:
    mixed = Grid(small(ablations={"x": {"steps": [2], "warmup": {"beta": 0.1}, "dpo": {"loss": "ipo"}}})).any_runs
    assert mixed["x/dpo"].changes == {"warmup.beta": 0.1, "loss": "ipo"}
    assert mixed["x/grpo"].changes == {"warmup.beta": 0.1}
    assert mixed["dpo"].changes == {}


def test_a_change_inside_a_section_is_named_by_its_key() -> None:
    retires = {"steps": "all", "policies": ["grpo"], "warmup": {"retire": {"after": 2}}}
    assert Grid(small(ablations={"x": retires})).any_runs["x/grpo"].changes == {"warmup.retire.after": 2}


def test_confounders_have_separate_folders() -> None:
    grid = Grid(CONFOUNDERS)
    folders = [policy.folder for policy in grid.policies] + [harvest.folder for harvest in grid.harvests]
    assert len(set(folders)) == len(folders)


COIN = {"coin": {"reward": "random", "p": 0.5}}
ON_COIN = {"source": "embedded", "settings": {"warmup": {"reward": "coin"}}}


def test_models_with_one_reward_share_its_words() -> None:
    assert Grid(small()).reward_words == ""
    assert Grid(small(rewards=COIN, models={"other": ON_COIN})).reward_words == "random rewards (p = 0.5)"


def test_rewards_that_differ_by_model_are_named_with_their_model() -> None:
    grid = Grid(small(rewards=COIN, models={"demo": {"source": "embedded"}, "other": ON_COIN}))
    assert grid.reward_words == "random rewards (p = 0.5) for other"


def test_the_pair_browser_compares_rewards_with_those_of_the_same_model() -> None:
    grid = Grid(small(rewards=COIN, models={"demo": {"source": "embedded"}, "other": ON_COIN}))
    assert shown_harvests(grid) == grid.harvests  # no harvest of an ablation with another reward


def test_the_pair_browser_shows_harvests_of_controls_of_the_first_seed() -> None:
    control = {"steps": "all", "policies": ["grpo", "dpo"], "reward": "coin"}
    grid = Grid(small(rewards=COIN, ablations={"coin": control}, seeds=[4, 2]))
    controls = [harvest for harvest in shown_harvests(grid) if harvest not in grid.harvests]
    assert {harvest.seed for harvest in controls} == {4}
    assert {harvest.seed for harvest in grid.harvests} == {4, 2}
