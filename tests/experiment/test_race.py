"""Seeds in stages: how they are written, and which jobs the looks so far leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from g2d.experiment import grid
from g2d.experiment.config import Config, load, read
from g2d.experiment.race import at_end, at_look, decided, next_look_words, taken, whole
from g2d.graph.build import grid_jobs
from g2d.jobs.files import write_json
from g2d.settings import ConfigError
from tests.race import race_config, race_values

SFT = {"regimes": {"sft": {"regime": "rft", "steps": [2]}}}


def after(counts: dict[str, int], **changes: Any) -> Config:
    """Return a race after a look that needs these numbers of seeds."""
    return at_look(race_config(**changes), {"look": {"seeds": counts, "next": counts}})


def test_a_race_may_stop_after_a_look_with_the_seeds_of_that_look() -> None:
    seed_counts = [{"m/dpo/g2/k2": n} for n in (3, 4)]
    looks = {f"look{i}": {"seeds": one, "next": one} for i, one in enumerate(seed_counts, 1)}
    seeds = {"looks": [2, 3, 4]}
    reached = [at_end(race_config(seeds=seeds | {"until": until}), looks).reached for until in (1, 2, 3)]
    assert [(state.seeds, list(state.files), state.is_over) for state in reached] == [
        ({}, ["look1"], True),
        (seed_counts[0], ["look1", "look2"], True),
        (seed_counts[1], ["look1", "look2"], False),
    ]
    assert at_end(race_config(seeds=seeds), looks).reached == reached[2]


def of_seed(keys: list[Any], seed: int) -> list[str]:
    return [key.folder.removeprefix(f"m/seed{seed}/") for key in keys if key.seed == seed]


def test_seeds_are_one_to_the_last_look_and_survive_the_record(tmp_path: Path) -> None:
    config = race_config()
    assert (config.seeds, config.looks.looks) == ([1, 2, 3], [2, 3])
    config.save(tmp_path / "config.yaml")
    recorded = read(tmp_path / "config.yaml")
    assert (recorded.identity, recorded.seeds) == (config.identity, config.seeds)


def test_a_list_of_seeds_has_no_looks() -> None:
    config = race_config(seeds=[1, 2])
    assert (config.looks, config.reached, decided(config)) == (None, None, config)
    assert "looks" not in config.identity


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": {"looks": [3, 2]}}, "seeds.looks: looks must ascend: [3, 2]"),
        ({"seeds": {"looks": [1, 2]}}, "seeds.looks.0: input should be greater than or equal to 2, not 1"),
        ({"seeds": {"looks": 3}}, "seeds.looks: input should be a valid list, not 3"),
        ({"seeds": {"look": [2, 3]}}, "seeds.look: unknown key; did you mean looks?"),
        ({"seeds": {"looks": [2, 3], "until": 3}}, "seeds.until=3: there are at most 2 looks: lower it"),
        ({"seeds": {"looks": [2, 3], "waiting": [2]}}, "seeds.waiting: no longer a key"),
        ({"seeds": [0, 1], "looks": {"looks": [2, 3]}}, "seeds: must be 1 to 3"),
        ({"models": {"looks": {"source": "embedded"}}}, "models.looks: the name is taken"),
        ({"seeds": {"looks": [2, 3], "plan": "plan.json"}}, "seeds.plan: plan.json is the name of a file"),
        ({"seeds": {"looks": [2, 3], "plan": "Look3.json"}}, "seeds.plan: Look3.json is the name of a file"),
    ],
)
def test_a_mistake_names_the_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(race_values() | changes)
    assert message in str(error.value)


def test_the_first_look_has_its_seeds_of_every_policy() -> None:
    first = decided(race_config(**SFT), "nowhere")
    assert {key.seed for key in grid.policies(first)} == {None, 1, 2}
    assert (
        of_seed(grid.policies(first), 3) == of_seed(grid.trainings(first), 3) == of_seed(grid.harvests(first), 3) == []
    )
    assert of_seed(grid.policies(first), 1) == of_seed(grid.policies(whole(first)), 1)
    assert of_seed(grid.trainings(first), 1) == of_seed(grid.trainings(whole(first)), 1)


def test_a_policy_that_continues_keeps_its_ancestors() -> None:
    """Its harvest, and the warm-ups on the way to its K; K=0 needs no warm-up."""
    config = after({"m/dpo/g0/k0": 3, "m/dpo/g2/k2": 2, "m/dpo/g2/k4": 3, "m/grpo/g2/k4": 2, "m/sft/g2/k2": 2}, **SFT)
    assert of_seed(grid.policies(config), 3) == ["dpo/g0/k0", "dpo/g2/k4"]
    assert of_seed(grid.harvests(config), 3) == ["harvest/g0/k0", "harvest/g2/k4"]
    assert sorted(of_seed(grid.trainings(config), 3)) == ["dpo/g0/k0", "dpo/g2/k4", "grpo/g2/k2", "grpo/g2/k4"]
    config = after({"m/dpo/g2/k2": 2, "m/sft/g2/k2": 3}, **SFT)
    assert of_seed(grid.harvests(config), 3) == ["harvest/g2/k2"]
    assert sorted(of_seed(grid.trainings(config), 3)) == ["grpo/g2/k2", "sft/g2/k2"]


@pytest.mark.parametrize(
    ("changes", "name", "trained", "harvested"),
    [
        (
            {"ablations": {"matched": {"steps": [0], "dpo": {"match_pairs_to": 2}}}},
            "matched/g0/k0",
            ["grpo/g2/k2", "matched/g0/k0"],
            ["g0/k0", "g2/k2"],
        ),
    ],
)
def test_ancestors_of_a_policy_are_trained(
    changes: dict[str, Any], name: str, trained: list[str], harvested: list[str]
) -> None:
    """Its teacher, earlier rounds, and the harvests that it is matched to are trained in any case."""
    config = after({f"m/{name}": 3, **dict.fromkeys(("m/dpo/g0/k0", "m/dpo/g2/k2", "m/grpo/g2/k4"), 2)}, **changes)
    assert sorted(of_seed(grid.trainings(config), 3)) == trained
    assert of_seed(grid.harvests(config), 3) == [f"harvest/{at}" for at in harvested]
    jobs = {job.name for job in grid_jobs(config) if "/seed3/" in job.name and "policy" in job.outputs}
    assert jobs == {f"results/m/seed3/{policy}/cost" for policy in trained}


def test_a_selected_checkpoint_has_all_its_candidates_behind_it() -> None:
    """Also if every K is a separate training."""
    best = {"steps": "all", "select": True, "policies": ["grpo"]}
    warmup = race_values()["warmup"] | {"schedule": "per_k"}
    changes = {"ablations": {"best": best}, "warmup": warmup, "sweep": {"development": 20}, "training_set": {"n": 60}}
    config = after(
        {"m/best/selected/g2/k4": 3, **dict.fromkeys(("m/dpo/g0/k0", "m/dpo/g2/k2", "m/dpo/g2/k4", "m/grpo/g2/k4"), 2)},
        **changes,
    )
    assert sorted(of_seed(grid.trainings(config), 3)) == ["grpo/g2/k2", "grpo/g2/k4"]


def test_an_empty_list_of_waiting_k_is_accepted() -> None:
    assert race_config(seeds={"looks": [2, 3], "waiting": []}) == race_config()


def test_looks_are_read_in_order_and_none_may_be_lost(tmp_path: Path) -> None:
    config, look = race_config(), {"look": 1, "seeds": {}, "next": {"m/dpo/g2/k2": 3}, "models": {}}
    config.save(tmp_path / "config.yaml")
    write_json(tmp_path / "looks/look1.json", look | {"seeds": {"m/dpo/g2/k2": 3}})
    assert of_seed(grid.policies(read(tmp_path / "config.yaml")), 3) == ["dpo/g2/k2"]
    assert list(taken(config.looks, tmp_path)) == ["results/looks/look1.json"]
    write_json(tmp_path / "looks/look3.json", look)
    with pytest.raises(ConfigError, match=r"look2\.json is missing, but look3\.json exists"):
        taken(config.looks, tmp_path)
    (tmp_path / "looks/look2.json").write_text("{")
    with pytest.raises(ConfigError, match=r"look2\.json: cannot be read as an interim analysis"):
        taken(config.looks, tmp_path)


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        ({"seeds": {"m/dpo/g2/k2": 1_000_000}}, "m/dpo/g2/k2 has 1000000 seeds"),
        ({"seeds": {"m/dpo/g2/k2": -5}}, "m/dpo/g2/k2 has -5 seeds"),
        ({"next": {"m/dpo/g2/k2": "3"}}, "m/dpo/g2/k2 has '3' seeds"),
        ({"next": {"m/dpo/../../x": 3}}, "'m/dpo/../../x' is no policy"),
        ({"look": 2}, "it is look 2"),
        ({"seeds": [3]}, "cannot be read as an interim analysis"),
    ],
)
def test_a_look_that_was_edited_is_refused(tmp_path: Path, edited: dict[str, Any], message: str) -> None:
    write_json(tmp_path / "looks/look1.json", {"look": 1, "seeds": {}, "next": {}, "models": {}} | edited)
    with pytest.raises(ConfigError) as refused:
        taken(race_config().looks, tmp_path)
    assert f"{tmp_path}/looks/look1.json: " in str(refused.value) and message in str(refused.value)


def test_a_look_beyond_the_last_is_refused(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_json(tmp_path / f"looks/look{number}.json", {"look": number, "seeds": {}, "next": {}, "models": {}})
    with pytest.raises(ConfigError, match=r"look3\.json: .* seeds\.looks=\[2, 3\] has 2 at most"):
        taken(race_config().looks, tmp_path)


def test_the_price_of_the_next_look_in_words() -> None:
    config = race_config()
    open_one = {"policy": "m/dpo/g2/k2", "reference": "m/base", "verdict": "open", "chance_next": 0.25, "chance": 0.5}
    cost = {"hours": 1.5, "hours_at_most": 4.0}
    look = {"next": {"m/dpo/g2/k2": 3}, "cost": cost, "models": {"m": {"comparisons": [open_one]}}}
    assert next_look_words(config, {}) == ["look 1 comes first, at 2 seeds; 3 are the most"]
    assert next_look_words(config, {"a": look}) == [
        "look 2: further seeds for 1 of the policies, about 1.50 device-hours, at most 4.00 device-hours "
        "for all looks that are left",
        "open: G2D (K=2, G=2) against M0, settled by the next look with 25 %, by the last with 50 %",
    ]
    assert next_look_words(config, {"a": look | {"next": {}}}) == ["the looks are over: look 1 was the last"]
    stopped = race_config(seeds={"looks": [2, 3], "until": 1})
    lines = next_look_words(stopped, {"a": look, "b": look | {"next": {}}})
    assert lines[0].startswith("seeds.until=1: no further look is taken; look 2: further seeds for 1 of the policies")
    assert lines == next_look_words(stopped, {"a": look})
