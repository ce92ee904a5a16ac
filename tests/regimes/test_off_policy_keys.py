"""The keys of off-policy GRPO: conflicts, parameters of a job, and when the reference is swapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from g2d.checks.load import load
from g2d.config.sections import Config
from g2d.grid.grid import Grid
from g2d.regimes.grpo.keys import Warmup
from g2d.settings import ConfigError
from tests.configs import MINIMAL

CHAIN: dict[str, Any] = {"steps": [0, 4, 8]}


def test_without_the_keys_nothing_depends_on_them() -> None:
    younger = {*Warmup.model_fields} - {*Warmup.__annotations__}
    assert {"updates_per_generation", "epsilon", "adam_betas"} < younger
    assert not younger & {*Warmup().params()}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"updates_per_generation": 3}, "K=4 is no multiple of updates_per_generation x iterations=3"),
        ({"updates_per_generation": 2, "iterations": 4}, "K=4 is no multiple of updates_per_generation x iterations=8"),
        ({"iterations": 3, "schedule": "per_k"}, "K=4 is no multiple"),
        ({"iterations": 4, "horizon": 10}, "horizon=10 is no multiple"),
        ({"iterations": 4, "horizon": 40, "auto": {"every": 6}}, "auto.every=6 is no multiple"),
        ({"iterations": 2, "sync_every": 2}, "set one to 1"),
        ({"correction": "token_mask", "ratio": "none"}, "correction has no effect with ratio: none"),
        ({"correction_cap": 2.0, "ratio": "none"}, "correction_cap has no effect with ratio: none"),
        ({"correction_floor": 0.5, "ratio": "none"}, "correction_floor has no effect with ratio: none"),
        ({"reward_std": "population", "scale_rewards": "none"}, "reward_std has no effect with scale_rewards: none"),
        ({"reference": "sync"}, "without a KL term changes nothing: set beta above 0"),
        ({"reset_optimizer": True}, "has no effect with reference: base"),
        ({"reference_every": 4}, "has no effect with reference: base"),
        ({"reference": "sync", "beta": 0.1, "reference_every": 0}, "reference_every=0 is no multiple"),
        ({"reference": "sync", "beta": 0.1, "reference_every": 6, "iterations": 4}, "reference_every=6 "),
    ],
    ids=str,
)
def test_keys_that_contradict_each_other_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Warmup.model_validate(CHAIN | keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"updates_per_generation": 2, "iterations": 2},
        {"updates_per_generation": 4, "schedule": "per_k"},
        {"iterations": 4, "horizon": 40, "auto": {"every": 8}},
        {"loss": "dapo", "epsilon_high": 0.28},
        {"correction": "token_mask", "correction_cap": 2.0, "correction_floor": 0.5, "iterations": 4},
        {"reward_std": "population", "mask_uniform_groups": True},
        {"reference": "sync", "beta": 0.1, "reference_every": 8, "iterations": 4, "reset_optimizer": True},
    ],
)
def test_keys_that_fit_stay_through_the_parameters_of_a_job(keys: dict[str, Any]) -> None:
    warmup = Warmup.model_validate(CHAIN | keys)
    of_policy = warmup.at(2, 8, stops=warmup.auto is not None)
    assert Warmup.model_validate(of_policy.params()) == of_policy
    for name in keys:
        assert getattr(of_policy, name) == getattr(warmup, name)


MOVING = {"reference": "sync", "beta": 0.1}
VLLM = {"engine": {"name": "vllm"}}
NO_DROPOUT = {"lora": {"dropout": 0.0}}


def ablation(warmup: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"ablations": {"own": {"steps": [150], "policies": ["grpo"], "warmup": warmup} | keys}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"warmup": {"correction": "token_mask"}}, "warmup.correction needs engine.name: vllm, because"),
        ({"warmup": {"correction_cap": 2.0}}, "warmup.correction_cap needs engine.name: vllm"),
        ({"warmup": {"correction_floor": 0.5}}, "warmup.correction_floor needs engine.name: vllm"),
        ({"warmup": MOVING}, "warmup.reference: sync needs lora.dropout: 0"),
        (ablation(MOVING), "ablations.own.warmup.reference: sync needs lora.dropout: 0"),
    ],
    ids=str,
)
def test_keys_that_other_sections_do_not_allow(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(MINIMAL | values)


@pytest.mark.parametrize(
    "values",
    [
        {"warmup": {"correction": "token_mask"}} | VLLM,
        {"warmup": {"correction_cap": 2.0}} | VLLM,
        {"warmup": MOVING} | NO_DROPOUT,
        ablation(MOVING) | NO_DROPOUT,
    ],
    ids=str,
)
def test_keys_that_other_sections_allow_are_not_refused(values: dict[str, Any]) -> None:
    load(MINIMAL | values)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"reference_every": 8}, [8, 16, 24]),
        ({}, [3, 5, 8, 10, 13, 15, 18, 20, 23]),  # 12, 20, 32, 40, ... prompts asked: a pass is 10
        ({"updates_per_generation": 4}, [4, 8, 12, 16, 20, 24]),  # 16 prompts a generation, each ends a pass
        ({"iterations": 4}, [12, 20]),  # one step's 4 prompts last for four: 12 and 20 asked
        ({"reference": "base"}, []),
    ],
)
def test_swaps_by_hand(keys: dict[str, Any], expected: list[int]) -> None:
    warmup = Warmup.model_validate(MOVING | {"steps": [24], "prompts_per_step": 4} | keys)
    assert [step for step in range(1, 25) if warmup.swaps_reference(step, 2, n_prompts=10)] == expected


def test_prompts_and_completions_by_hand() -> None:
    warmup = Warmup(steps=[12], updates_per_generation=3, iterations=2, prompts_per_step=8)
    assert warmup.prompts_asked(12, group_size=4) == 6 * 8
    assert warmup.completions_per_generation(4) == 3 * 8 * 4
    assert warmup.continued_every == 6
    assert Warmup(steps=[12], sync_every=3).continued_every == 3


def test_the_example_in_the_documentation_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs/off_policy.md").read_text()
    example = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    config = Config.model_validate(MINIMAL | example)
    assert list(config.ablations) == ["stale", "unclipped", "uncorrected", "reused"]
    runs = Grid(config).any_runs
    for name in config.ablations:
        assert runs[f"{name}/grpo"].settings.updates_between_generations == 10
