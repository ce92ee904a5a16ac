"""Settings that several processes cannot train are refused with key and fix; a job requests a GPU per process."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.checks.load import load
from g2d.settings import ConfigError
from tests.configs import MINIMAL

SIZE_2 = {"baselines": {"grpo_group_sizes": [2]}}
FOUR, ONE_PASS = {"per_device_batch_size": 4}, {"gradient_accumulation_steps": 1}
TWO, EIGHT = ({"training": {"processes": n}} for n in (2, 8))
ONLINE = {"regime": "semi_online_dpo", "steps": [2]}


# Refused if there are two processes.
OF_TWO = [
    ({"dpo": FOUR | {"gradient_accumulation_steps": 3}}, "dpo.gradient_accumulation_steps=3 "),
    ({"dpo": {"precompute_reference": True}}, "dpo.precompute_reference "),
    ({"warmup": FOUR | {"gradient_accumulation_steps": 5}}, "warmup.gradient_accumulation_steps=5 "),
    ({"warmup": {"prompts_per_step": 2, "group_sizes": [2], "per_device_batch_size": 4}}, "warmup: with G=2"),
    ({"warmup": {"per_device_batch_size": 2, "gradient_accumulation_steps": 2, "group_sizes": [4]}}, "warmup: each of"),
    ({"warmup": {"retire": {"after": 1}}}, "warmup.retire "),
    ({"warmup": {"iterations": 2, "steps": [0, 2]}}, "warmup: updates_per_generation or iterations above 1"),
    ({"warmup": {"loss": "bnpo"}}, "warmup.loss: bnpo "),
    ({"ablations": {"x": {"steps": [150], "warmup": {"entropy_coefficient": 1}}}}, "ablations.x.warmup.entropy_coeffi"),
    ({"warmup": {"auto": {"every": 10}}}, "warmup.auto "),
    ({"regimes": {"x": FOUR | {"regime": "rft"} | ONE_PASS}}, "regimes.x.gradient_accumulation_steps=1 "),
    ({"regimes": {"fresh": ONLINE | {"prompts_per_update": 1}}}, "fresh.prompts_per_update=1 "),
    ({"regimes": {"fresh": ONLINE | {"retire": {"after": 1}}}}, "regimes.fresh.retire "),
    ({"ablations": {"x": {"steps": [0], "dpo": FOUR | ONE_PASS}}}, "ablations.x.dpo.gradient_accumulation_steps=1 "),
]


@pytest.mark.parametrize(
    ("keys", "allowed", "refused", "message"),
    [
        *((keys, {}, TWO, message) for keys, message in OF_TWO),
        (SIZE_2 | {"dpo": {"gradient_accumulation_steps": 3}}, TWO, EIGHT, "dpo: the rows of a step=12 "),
        ({"warmup": {"prompts_per_step": 2}}, TWO, EIGHT, "warmup: with G=2, the completions of a step=4 "),
    ],
)
def test_what_processes_cannot_train_is_refused(
    keys: dict[str, Any], allowed: dict[str, Any], refused: dict[str, Any], message: str
) -> None:
    load(MINIMAL | keys | allowed)
    with pytest.raises(ConfigError) as error:
        load(MINIMAL | keys | refused)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_nothing_that_one_process_computes_depends_on_how_many_there_are() -> None:
    assert load(MINIMAL | TWO).identity == load(MINIMAL).identity


def test_models_may_have_different_numbers_of_processes() -> None:
    large = {"source": "embedded", "settings": TWO}
    config = load(MINIMAL | {"models": {"small": {"source": "embedded"}, "large": large}})
    assert [config.for_model(name).training.processes for name in ("small", "large")] == [1, 2]
    assert config.identity["models"]["large"]["settings"] == {}
