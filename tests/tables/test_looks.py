"""Looks at a grid's answers: what is planned, what is decided, and what may not change afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from g2d.experiment.config import Config
from g2d.experiment.race import look_name, taken
from g2d.jobs.files import read_json, write_json
from g2d.report.looks import look_sentences, path
from g2d.report.tables import cells_of
from g2d.settings import ConfigError
from g2d.tables.looks import looks_table, plan_of, require_plan, steps_of, take, write_plan
from tests.race import race_config, write_answers


def raced(results: Path, **changes: Any) -> Config:
    """A race that is over."""
    config = race_config(**changes)
    write_plan(config, results)
    for number, seeds in ((1, 2), (2, 3)):
        write_answers(config, results, seeds)
        look = take(config, number, results) | {"cost": {"hours": 0.25, "hours_at_most": 0.25}}
        write_json(results / look_name(config.looks, number).removeprefix("results/"), look)
    return config


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("race")
    raced(folder)
    return folder


@pytest.fixture
def changed(results: Path, tmp_path: Path) -> Path:
    """A copy of the race, to be changed."""
    return copytree(results, tmp_path, dirs_exist_ok=True)


def test_the_plan_has_the_comparisons_of_the_page_that_seeds_can_decide() -> None:
    plan = plan_of(race_config(regimes={"sft": {"regime": "rft", "steps": [2]}}, seeds={"looks": [2]}), "m")
    pairs = {(one.family, one.policy.removeprefix("m/"), one.reference.removeprefix("m/")) for one in plan.asked}
    assert pairs == {
        ("DPO against K=0", "dpo/g2/k2", "dpo/g0/k0"),
        ("DPO against K=0", "dpo/g2/k4", "dpo/g0/k0"),
        ("DPO against GRPO", "dpo/g0/k0", "grpo/g2/k4"),
        ("DPO against GRPO", "dpo/g2/k2", "grpo/g2/k4"),
        ("DPO against GRPO", "dpo/g2/k4", "grpo/g2/k4"),
        ("regimes against M0", "sft/g2/k2", "base"),
        ("regimes against what they differ from", "sft/g2/k2", "dpo/g2/k2"),
    }
    assert (plan.margin, plan.without_seeds) == (0.1, ("m/base",))
    assert set(plan.alike) == {"m/dpo/g0/k0", "m/dpo/g2/k2", "m/dpo/g2/k4"}


def edited(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    record = read_json(file)
    change(record)
    write_json(file, record)


def edit_plans(results: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    for file in (results / "looks").glob("*.json"):
        plan = "plan" if file.name.startswith("look") else ""
        edited(file, lambda record, plan=plan: change(record["models"]["m"][plan] if plan else record["models"]["m"]))


def test_looks_of_an_earlier_version_stay_valid(changed: Path) -> None:
    """It wrote the empty list `waiting` into every plan."""
    edit_plans(changed, lambda plan: plan.update(waiting=[]))
    require_plan(race_config(), changed)
    edited(changed / "looks/plan.json", lambda plan: plan["models"]["m"].update(waiting=["m/dpo/g2/k2"]))
    with pytest.raises(ConfigError, match=r"models\.m\.waiting is not what it was"):
        require_plan(race_config(), changed)


def test_a_race_that_began_with_hochbergs_steps_keeps_them(changed: Path) -> None:
    """Plans of earlier versions do not name their steps."""
    config = race_config()
    assert steps_of(taken(config.looks, changed)) == "holm"
    (changed / "looks/look2.json").unlink()
    edit_plans(changed, lambda plan: plan.pop("steps"))
    require_plan(config, changed)
    write_plan(config, changed)
    look = take(config, 2, changed)
    assert [model["plan"]["steps"] for model in look["models"].values()] == ["hochberg"]
    write_json(changed / "looks/look2.json", look)
    require_plan(config, changed)
    assert steps_of(taken(config.looks, changed)) == "hochberg"
    edited(changed / "looks/look1.json", lambda look: look["models"]["m"]["plan"].update(steps="holm"))
    with pytest.raises(ConfigError, match=r"models\.m\.steps is not what it was"):
        require_plan(config, changed)


def test_two_looks_drop_one_policy_and_settle_another(results: Path) -> None:
    first, second = taken(race_config().looks, results).values()
    assert first["next"] == {"m/dpo/g0/k0": 3, "m/dpo/g2/k2": 3}
    assert first["seeds"] == first["next"] | {"m/dpo/g2/k4": 2, "m/grpo/g2/k4": 2}
    assert second["next"] == {}
    rows = looks_table(race_config(), taken(race_config().looks, results))
    against_k0 = rows[rows["reference"] == "m/dpo/g0/k0"]
    assert against_k0[["look", "policy", "n_seeds", "verdict"]].to_numpy().tolist() == [
        [1, "m/dpo/g2/k2", 2, "open"],
        [1, "m/dpo/g2/k4", 2, "better"],
        [2, "m/dpo/g2/k2", 3, "within"],
    ]
    assert len(rows) == 6  # policies with a verdict are not tested again


def test_later_answers_do_not_change_a_look(results: Path, tmp_path: Path) -> None:
    config = race_config()
    write_plan(config, tmp_path)
    write_answers(config, tmp_path, 3)
    again = take(config, 1, tmp_path)
    before = taken(config.looks, results)[look_name(config.looks, 1)]
    assert again == {name: value for name, value in before.items() if name != "cost"}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"seeds": {"looks": [2, 4]}}, "models.m.looks"),
        ({"seeds": {"looks": [2, 3], "error": 0.1}}, "models.m.error"),
        ({"margin": 0.2}, "models.m.margin"),
        ({"warmup": {"steps": [0, 2, 3, 4], "horizon": 6, "max_completion_length": 16}}, "models.m.asked"),
        ({"dpo": {"learning_rate": 1e-3}}, "settings.dpo.learning_rate"),
    ],
)
def test_a_plan_that_changes_after_a_look_is_refused(results: Path, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"seeds\.looks: {key} is not what it was"):
        require_plan(race_config(**changes), results)


@pytest.mark.parametrize(
    "edit",
    [
        lambda look: look["seeds"].update({"m/dpo/g2/k4": 3}),
        lambda look: look["next"].clear(),
        lambda look: look["models"]["m"]["plan"].update(margin=0.5),
        lambda look: look["models"]["m"].pop("policies"),
        lambda look: look["models"].update(other=look["models"]["m"]),
    ],
)
def test_a_look_whose_seeds_its_comparisons_do_not_ask_for_is_refused(changed: Path, edit: Any) -> None:
    edited(changed / "looks/look1.json", edit)
    with pytest.raises(ConfigError, match=r"results/looks/look1\.json: its seeds do not follow"):
        require_plan(race_config(), changed)


def test_settings_without_influence_on_answers_may_change(results: Path) -> None:
    require_plan(race_config(), results)
    benchmarks = race_config().model_dump()["benchmarks"]
    further = {"other": benchmarks["arithmetic"] | {"family": "word_problems"}}
    require_plan(race_config(title="Another", benchmarks=benchmarks | further), results)
    require_plan(race_config(probe={"prompts": 4}), results)
    require_plan(race_config(seeds={"looks": [4]}), Path("nowhere"))  # before the first look anything may


def test_another_plan_restarts_with_a_message(changed: Path) -> None:
    config = raced(changed, seeds={"looks": [2, 3], "plan": "again", "error": 0.1})
    require_plan(config, changed)
    assert list(taken(config.looks, changed)) == ["results/looks/again/look1.json", "results/looks/again/look2.json"]
    assert any("another plan before (looks)" in line for line in look_sentences(config, changed))


def test_the_page_says_at_which_look_a_verdict_fell(results: Path) -> None:
    text = "\n".join(look_sentences(race_config(), results))
    assert "after 2, 3 seeds, on arithmetic" in text
    assert "Analysis 1: of 5 comparisons 4 better, 1 open; further seeds for 2 of the policies, about 0.25" in text
    assert "Analysis 2: of 5 comparisons 1 within" in text
    assert "G2D (K=4, G=2) is better than DPO (K=0)" in text
    table = looks_table(race_config(), taken(race_config().looks, results))
    assert len(path(table)["layer"]) == 3
    assert [str(cell.text) for cell in cells_of(table).rows[0][:2]] == ["G2D (K=2, G=2)", "DPO (K=0)"]


def test_seeds_that_are_added_by_hand_are_outside_of_the_plan(results: Path, tmp_path: Path) -> None:
    by_hand = race_config(seeds=[1, 2, 3, 4])
    assert "lists its seeds by hand" in look_sentences(by_hand, results)[0]
    assert look_sentences(by_hand, tmp_path) == []
