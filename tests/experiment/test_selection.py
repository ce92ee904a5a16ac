"""Selecting checkpoints in a configuration: which policies there are, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.experiment import grid
from g2d.experiment.config import Config, load
from g2d.experiment.grid import checkpoints, trainings
from g2d.experiment.sweep import with_candidates
from g2d.settings import ConfigError
from tests import open_ended
from tests.experiment.test_config import MINIMAL
from tests.experiment.test_sweep import settings_of

ONLINE = {"regime": "semi_online_dpo", "steps": [2, 4, 6], "prompts_per_update": 4, "select": True}
HOT = {"steps": [2, 4], "warmup": {"temperature": 1.1}, "policies": ["grpo"], "select": True}
COMMON: dict[str, Any] = {
    "seeds": [3, 4],
    "pool": MINIMAL["pool"] | {"n": 100},
    "training_set": {"n": 60},
    "warmup": {"steps": [0, 2, 4], "horizon": 8},
    "sweep": {"development": 20},
    "rewards": {"coin": {"reward": "random"}, "polite": open_ended.JUDGE},
}
OPEN = {
    "pool": open_ended.POOL,
    "held_out": open_ended.HELD_OUT,
    "development": open_ended.DEVELOPMENT,
    "reward": "polite",
}


def configured(**changes: Any) -> Config:
    return load(MINIMAL | COMMON | changes)


def test_one_policy_a_seed_is_evaluated_and_every_k_is_trained() -> None:
    best = {"steps": "all", "select": True, "policies": ["grpo"]}
    config = configured(regimes={"s1": ONLINE}, ablations={"hot": HOT, "best": best})
    folders = {key.folder: [other.folder for other in tried] for key, tried in checkpoints(config).items()}
    assert folders == {
        f"demo/seed{seed}/{name}": [f"demo/seed{seed}/{place}/k{k}" for k in steps]
        for name, place, steps in (
            ("s1/selected/g8/k6", "s1/g8", (2, 4, 6)),
            ("hot/selected/g2/k4", "hot/grpo/g2", (2, 4)),
            ("best/selected/g2/k4", "grpo/g2", (2, 4)),
        )
        for seed in (3, 4)
    }
    evaluated = [key.folder for key in grid.policies(config)]
    assert {folder for folder in evaluated if "selected" in folder} == set(folders)
    assert not {folder for tried in folders.values() for folder in tried if "grpo/g2/k4" not in folder} & set(evaluated)
    trained = {key.folder for key in trainings(config)}
    assert {folder for tried in folders.values() for folder in tried} <= trained
    assert not trained & set(folders)


def test_selection_does_not_change_a_training() -> None:
    chosen = configured(regimes={"s1": ONLINE}, ablations={"hot": HOT})
    others = {"s1": ONLINE | {"select": False}}, {"hot": HOT | {"select": False}}
    plain = configured(regimes=others[0], ablations=others[1], sweep=None)
    for arm in ("s1", "hot/grpo"):
        assert settings_of(chosen, arm, 4) == settings_of(plain, arm, 4)


def test_candidates_of_a_sweep_are_not_selected_from() -> None:
    rates = {"learning_rate": [1e-4, 1e-3]}
    swept = with_candidates(
        configured(
            regimes={"s1": ONLINE},
            ablations={"hot": HOT},
            sweep={"development": 20, "regimes": {"s1": rates, "hot": rates}},
        )
    )
    names = [name for name in (*swept.ablations, *swept.regimes) if "@" in name]
    assert len(names) == 4
    assert not any((swept.ablations.get(name) or swept.regimes[name]).select for name in names)
    assert [*checkpoints(swept)] == [key for key in grid.policies(swept) if key.arm.selected]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep": None}, "regimes.x.select: there are no development problems to choose by: add the section sweep"),
        ({"x": {"steps": [4]}}, r"regimes.x.select: \[4\] leaves nothing to choose \(M0 is no candidate\): list two K"),
        ({"x": {"reward": "coin"}}, "regimes.x.select: "),
        (
            {"open_ended": OPEN | {"development": None}, "x": {"prompts": "open_ended"}, "sweep": None},
            "regimes.x.select: there are no open-ended development prompts to choose by: add open_ended.development",
        ),
        ({"x": {"regime": "rft"}}, "regimes.x.select: unknown key"),
        ({"x": {"select": False}}, "sweep: "),
        ({"open_ended": OPEN}, "open_ended.development: "),
        ({"open_ended": OPEN | {"samples_per_prompt": 1}, "x": {"prompts": "mixed"}}, "regimes.x.select: "),
        ({"also": {"selected": {"regime": "rft"}}}, "regimes.selected: the name is taken by the checkpoints that"),
        ({"ablations": {"best": {"steps": [2], "select": True, "policies": ["grpo"]}}}, "ablations.best.select: "),
        ({"ablations": {"best": {"steps": [0, 2], "select": True, "policies": ["grpo"]}}}, "ablations.best.select: "),
        ({"ablations": {"best": {"steps": [2, 4], "select": True}}}, "ablations.best.policies: "),
        (
            {
                "ablations": {"best": {"steps": [2, 4], "select": True, "policies": ["grpo"]}},
                "sweep": {"development": 20, "regimes": {"best": {"beta": [0.1, 0.2]}}},
            },
            "ablations.best.select: its checkpoints are the main warm-up's, which sweep.regimes.best cannot tune",
        ),
    ],
)
def test_invalid_selections_are_named(changes: dict[str, Any], message: str) -> None:
    entry = ONLINE | changes.get("x", {})
    if entry["regime"] == "rft":
        entry = {"regime": "rft", "steps": [2], "select": True}
    others = {name: values for name, values in changes.items() if name not in ("x", "also")}
    with pytest.raises(ConfigError, match=message):
        configured(**others, regimes={"x": entry} | changes.get("also", {}))
