"""The grid as a function of the configuration: what exists, where, and what continues what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from g2d.checks.load import load, read
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, Policy
from g2d.regimes.grpo.keys import Warmup
from g2d.tables.reads import shown_harvests
from tests.configs import CONFIG, MINIMAL

PAPER = read(Path(__file__).parents[2] / "config/paper.yaml")


def small(**changes: object) -> Config:
    return load(MINIMAL | {"seeds": [0], "warmup": {"steps": [0, 2, 4], "horizon": 8}} | changes)


def labelled(grid: Grid, label: str) -> list[Policy]:
    return [policy for policy in grid.policies if policy.label == label]


def folders(of: Sequence[Policy | Harvest]) -> list[str]:
    return [one.folder for one in of]


def warmup_of(grid: Grid, run: str) -> Warmup:
    settings = grid.runs["demo"][run].settings
    assert isinstance(settings, Warmup)
    return settings


def test_papers_table_1_has_nine_rows_per_model() -> None:
    rows = []
    for policy in Grid(PAPER).policies:
        is_first = policy.model == "qwen2.5-7b-instruct" and policy.seed in (None, 0)
        if is_first and policy.run_name in ("base", "dpo", "grpo"):
            rows.append((policy.label, policy.group_size, policy.k))
    expected = [("base", 0, 0), ("dpo", 0, 0), ("g2d", 2, 150), ("g2d", 2, 300), ("g2d", 2, 500)]
    expected += [("g2d", 2, 700), ("g2d", 2, 1000), ("grpo", 2, 1000), ("grpo", 4, 1000)]
    assert rows == expected


def test_a_chain_continues_the_largest_smaller_k() -> None:
    chain = Grid(small(warmup={"steps": [0, 2, 4, 6]})).runs["demo"]["grpo"]
    assert chain.step_before(2, 2) is None
    assert chain.step_before(2, 4) == 2
    assert chain.step_before(2, 6) == 4


def test_independent_runs_continue_no_checkpoint() -> None:
    config = small(warmup={"steps": [0, 2, 4], "schedule": "per_k"})
    assert Grid(config).runs["demo"]["grpo"].step_before(2, 4) is None
    assert config.warmup.at(2, 2).horizon == 2
    assert config.warmup.at(2, 4).horizon == 4


def test_a_chains_settings_do_not_depend_on_the_grid() -> None:
    more = small(warmup={"steps": [0, 2, 3, 4], "horizon": 8})
    assert small().warmup.at(2, 2) == more.warmup.at(2, 2)


def test_without_k_0_there_is_no_plain_dpo() -> None:
    grid = Grid(small(warmup={"steps": [2], "horizon": 8}))
    trained = ["demo/seed0/dpo/g2/k2", "demo/seed0/grpo/g2/k2", "demo/seed0/grpo/g4/k2"]
    assert sorted(folders(grid.policies)) == ["demo/base", *trained]


# ---------------------------------------------------------------------------------------------- early-stopping warm-up

AUTO = {"steps": [0, 2, 4], "horizon": 8, "group_sizes": [2, 4], "auto": {"every": 2}}


def test_one_policy_per_group_size_and_seed_stops_early() -> None:
    grid = Grid(small(warmup=AUTO))
    assert folders(labelled(grid, "g2d-auto")) == ["demo/seed0/auto/dpo/g2/k8", "demo/seed0/auto/dpo/g4/k8"]
    assert folders(grid.automatic_warmups) == ["demo/seed0/auto/grpo/g2/k8", "demo/seed0/auto/grpo/g4/k8"]
    assert grid.variants == ["auto"]
    fixed = Grid(small(warmup=AUTO | {"auto": None}))
    assert grid.harvests == fixed.harvests
    assert grid.config.warmup.at(2, 4) == fixed.config.warmup.at(2, 4)


def test_an_ablated_warmup_does_not_stop_early() -> None:
    config = small(warmup=AUTO, ablations={"alone": {"steps": [2], "warmup": {"schedule": "per_k"}}})
    assert warmup_of(Grid(config), "alone/grpo").auto is None
    assert sorted(Grid(config).variants) == ["alone", "auto"]


def test_it_can_be_the_setting_of_one_model() -> None:
    models = {"demo": {"source": "embedded"}, "other": {"source": "embedded", "settings": {"warmup": {"auto": {}}}}}
    [stopped] = labelled(Grid(small(models=models, warmup={"steps": [0, 2], "horizon": 500})), "g2d-auto")
    assert stopped.model == "other"


# --------------------------------------------------------------------------------------------------------- ablations

CONFOUNDERS = load(
    yaml.safe_load((CONFIG / "paper.yaml").read_text())
    | {"ablations": yaml.safe_load((CONFIG / "overlays/confounders.yaml").read_text())["ablations"]}
)


def test_an_ablation_of_every_k_follows_the_grid() -> None:
    by_name = Grid(CONFOUNDERS).runs["qwen2.5-7b-instruct"]
    assert by_name["n-matched"].points == ((0, 0), (2, 150), (2, 300), (2, 500), (2, 700), (2, 1000))
    assert by_name["from-warmup"].points[0] == (2, 150)  # there is no warm-up at K=0


def test_an_ablated_warmup_has_separate_folders_and_a_separate_chain() -> None:
    changes = {"max_completion_length": 64, "group_sizes": [4]}
    grid = Grid(small(ablations={"long": {"steps": [3, 6], "warmup": changes}}))
    ablated = [folder for folder in folders(grid.policies) if "/long/dpo/" in folder]
    assert ablated == ["demo/seed0/long/dpo/g4/k3", "demo/seed0/long/dpo/g4/k6"]
    assert grid.runs["demo"]["long/grpo"].step_before(4, 6) == 3
    assert grid.runs["demo"]["grpo"].step_before(4, 4) is None  # a baseline that is trained at one K only
    main = warmup_of(grid, "grpo").at(4, 3).params()
    longer = warmup_of(grid, "long/grpo").at(4, 3).params()
    assert longer == main | {"max_completion_length": 64}  # the same horizon


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
    every = folders(grid.policies) + folders(grid.harvests)
    assert len(set(every)) == len(every)


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
    assert {harvest.seed for harvest in grid.harvests} == {4, 2}
    controls = set(shown_harvests(grid)) - set(grid.harvests)
    assert {harvest.seed for harvest in controls} == {4}
