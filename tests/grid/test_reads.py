"""What a training reads, and the settings that it depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from g2d.checks.load import load, read
from g2d.grid.grid import Grid
from g2d.grid.runs import Harvest, Policy
from g2d.settings import ConfigError
from tests.configs import CONFIG, MINIMAL
from tests.open_ended import HELD_OUT, JUDGE, POOL

SHIPPED = sorted(CONFIG.glob("*.yaml"))


def configured(**changes: Any) -> Grid:
    return Grid(load(MINIMAL | {"seeds": [0], "warmup": {"steps": [0, 2, 4, 6], "horizon": 8}} | changes))


def policy(grid: Grid, folder: str) -> Policy:
    return grid.at(f"demo/seed0/{folder}")


def settings_of(grid: Grid, folder: str) -> Any:
    return grid.settings_of(policy(grid, folder))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_policy_is_found_by_its_folder(file: Path) -> None:
    grid = Grid(read(file))
    for trained in grid.trained:
        assert grid.at(trained.folder) == trained


@pytest.mark.parametrize(
    "folder",
    [
        *("demo", "other/base", "demo/seed1/dpo/g0/k0", "demo/seed0/rft/g0/k0", "demo/seed0/dpo/g2/k5"),
        *("demo/seed0/grpo/g2/k9", "demo/seed0/grpo/g2/k0", "demo/seed0/grpo/k2", "demo/seed0/grpo/gx/k2"),
    ],
)
def test_a_policy_that_is_not_asked_for_is_named(folder: str) -> None:
    with pytest.raises(LookupError, match=f"no policy {folder}"):
        configured().at(folder)


def test_a_chain_continues_the_k_before() -> None:
    grid = configured()
    second = policy(grid, "grpo/g2/k2")
    assert second.reads.continues is None
    assert policy(grid, "grpo/g2/k6").reads.continues == policy(grid, "grpo/g2/k4")
    assert policy(grid, "grpo/g2/k3").reads.continues == second  # no K of the grid, and still a policy


def test_pairs_are_matched_to_a_k_or_to_the_fewest() -> None:
    ablations = {
        "n-matched": {"steps": [0], "dpo": {"match_pairs_to": 4}},
        "fewest": {"steps": [0], "dpo": {"match_pairs_to": "min"}},
        "longer": {"steps": [4], "warmup": {"learning_rate": 1e-3}, "dpo": {"match_pairs_to": 4}},
    }
    grid = configured(ablations=ablations)

    def counted(folder: str) -> tuple[Harvest, ...]:
        return policy(grid, folder).reads.matched_harvests

    at_2, at_4, at_6 = Harvest("demo", 2, 2, 0), Harvest("demo", 2, 4, 0), Harvest("demo", 2, 6, 0)
    assert counted("dpo/g0/k0") == ()
    assert counted("n-matched/g0/k0") == (at_4,)
    assert counted("fewest/g0/k0") == (Harvest("demo", 0, 0, 0), at_2, at_4, at_6)
    assert counted("longer/dpo/g2/k4") == (Harvest("demo", 2, 4, 0, "longer"),)
    assert settings_of(grid, "longer/grpo/g2/k4")["warmup"]["learning_rate"] == 1e-3


def test_an_entry_depends_only_on_its_keys_and_its_k() -> None:
    entry = {"regime": "rft", "epochs": 2, "start": "warmup"}
    grid = configured(regimes={"right": entry})
    found = settings_of(grid, "right/g2/k4")
    assert settings_of(configured(regimes={"right": entry | {"steps": [4]}}), "right/g2/k4") == found
    assert found["rft"] == {
        "regime": "rft",
        "steps": [4],
        "start": "warmup",
        "epochs": 2,
        "learning_rate": 5e-5,
        "lr_schedule": "cosine",
        "per_device_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "max_steps": None,
    }
    assert set(found) == {"rft", "lora", "prompt"}
    reads = policy(grid, "right/g2/k4").reads
    assert reads.start == policy(grid, "grpo/g2/k4")
    assert reads.harvest == Harvest("demo", 2, 4, 0)


def test_an_online_entry_may_start_from_another() -> None:
    online = {"regime": "semi_online_dpo", "steps": [2, 4], "sync_every": 1}
    grid = configured(
        regimes={"first": online | {"responses": 4}, "then": online | {"start": "first", "start_step": 2}}
    )
    then = policy(grid, "then/g8/k4")
    assert then.reads.start == policy(grid, "first/g4/k2")
    assert then.reads.continues == policy(grid, "then/g8/k2")
    assert then.online_steps == 2 + 4
    assert policy(grid, "first/g4/k2").reads.start is None


def test_a_warmup_that_stops_automatically_continues_nothing() -> None:
    grid = configured(warmup={"steps": [0, 2, 4], "horizon": 4, "auto": {"every": 2, "patience": 1}})
    stopped = policy(grid, "auto/grpo/g2/k4")
    assert stopped.reads.continues is None
    harvest = policy(grid, "auto/dpo/g2/k4").reads.harvest
    assert harvest == Harvest("demo", 2, 4, 0, "auto")
    assert grid.harvested(harvest) == stopped


def test_another_reward_judges_the_harvest_of_m0_again_and_draws_its_own_later() -> None:
    control = {"steps": [0, 4], "reward": "coin"}
    keys = {"rewards": {"coin": {"reward": "random"}}, "ablations": {"control": control}}
    grid = configured(**keys)
    of_m0 = Harvest("demo", 0, 0, 0, "control")
    assert grid.judged_again(of_m0) == Harvest("demo", 0, 0, 0)
    assert grid.harvested(of_m0) == Policy("demo")
    later = Harvest("demo", 2, 4, 0, "control")
    assert grid.judged_again(later) is None
    assert grid.harvested(later) == policy(grid, "control/grpo/g2/k4")
    without = configured(**keys, warmup={"steps": [4], "horizon": 8})
    assert without.judged_again(of_m0) is None


def test_chosen_levels_are_a_setting_of_the_selection_and_sampled_ones_of_the_calibration() -> None:
    for sampled, of_calibration in (("all", None), ("pinned", [2])):
        grid = configured(calibration={"levels": [2], "sampled_levels": sampled}, training_set={"n": 100})
        of_jobs = grid.job_settings["demo"]
        assert of_jobs.calibration()["calibration"].get("levels") == of_calibration
        assert of_jobs.training_set()["calibration"]["levels"] == [2]


def test_prompts_are_a_setting_of_the_warmup_that_asks_open_ended_ones() -> None:
    grid = configured(
        ablations={"open": {"steps": [4], "prompts": "open_ended", "policies": ["grpo"]}},
        rewards={"taste": JUDGE},
        open_ended={"pool": POOL, "held_out": HELD_OUT, "reward": "taste"},
    )
    assert settings_of(grid, "open/grpo/g2/k4")["prompts"] == {"prompts": "open_ended"}
    assert "prompts" not in settings_of(grid, "grpo/g2/k4")


def test_the_verifier_is_a_setting_of_what_judges_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entries = {"online": {"regime": "semi_online_dpo", "steps": [2], "prompts_per_update": 4}, "rft": {"regime": "rft"}}
    keys = {"training_set": {"n": 60}, "warmup": {"steps": [0, 2], "horizon": 8}, "regimes": entries}

    def settings(**more: Any) -> pd.Series[str]:
        """Return the settings of every job as text, by its name."""
        grid = configured(**keys, **more)
        of_jobs = grid.job_settings["demo"]
        found = {trained.run_name: of_jobs.training(trained) for trained in grid.trained}
        found["calibrate"] = of_jobs.calibration()
        found["answers"] = of_jobs.answers()
        found["harvest"] = of_jobs.harvest(grid.any_runs["grpo"])
        found["pairs"] = of_jobs.pairs()
        return pd.Series(found).map(repr)

    judging = {"calibrate", "grpo", "harvest", "online", "answers"}
    Path("mine.py").write_text("def judge(problem, completion): ...\n")
    verifier = {"source": "python", "file": "mine.py"}
    own = settings(verifier=verifier)
    assert set(own.index[own != settings()]) == judging
    Path("mine.py").write_text("def judge(problem, completion): ...  # edited\n")
    assert set(own.index[own != settings(verifier=verifier)]) == judging


def test_a_benchmark_that_selects_is_loaded_with_the_same_settings() -> None:
    def params(**marked: bool) -> Any:
        picks = yaml.safe_load(yaml.safe_dump(MINIMAL["benchmarks"]["held-out"])) | {"split": "development"} | marked
        grid = configured(benchmarks=MINIMAL["benchmarks"] | {"picks": picks})
        return grid.config.problem_sources["picks"].params(without={"select_by"})

    assert params(select_by=True) == params()


def test_the_reward_of_the_warm_up_holds_for_the_main_grid_and_whatever_names_no_other() -> None:
    rewards = {"mine": {"reward": "random"}, "truth": {"reward": "math_verify"}}
    control = {"steps": [0, 4], "reward": "truth", "policies": ["dpo", "grpo"]}
    grid = configured(
        warmup={"steps": [0, 4], "horizon": 8, "reward": "mine"},
        rewards=rewards,
        ablations={"faster": {"steps": [4], "warmup": {"learning_rate": 1e-3}}, "control": control},
        regimes={"fresh": {"regime": "semi_online_dpo", "steps": [2]}},
    )
    expected = {"grpo/g2/k4": "random", "faster/grpo/g2/k4": "random", "control/grpo/g2/k4": "math_verify"}
    for folder, reward in (expected | {"fresh/g8/k2": "random"}).items():
        assert settings_of(grid, folder)["reward"]["reward"] == reward
    assert "reward" not in settings_of(grid, "grpo/g2/k4")["warmup"]  # another name is no other training
    assert grid.job_settings["demo"].harvest(grid.any_runs["grpo"])["reward"]["reward"] == "random"
    main = Harvest("demo", 0, 0, 0)
    assert grid.judged_again(main) is None
    assert grid.judged_again(Harvest("demo", 0, 0, 0, "control")) == main


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warmup": {"reward": "mine"}}, "warmup.reward: mine is no entry of rewards: add it there"),
        (
            {"warmup": {"reward": {"file": "mine.py"}, "auto": {"every": 50}}},
            "warmup: auto stops by the share of right rollouts",
        ),
        (
            {"ablations": {"other": {"steps": [150], "warmup": {"reward": "mine"}}}},
            "ablations.other: warmup.reward: write it as the ablation's reward",
        ),
    ],
)
def test_a_reward_of_the_warm_up_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(MINIMAL | changes)
