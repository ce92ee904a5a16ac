"""What several processes cannot train is refused with key and fix, and a job asks for as many GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from g2d.experiment.config import load
from g2d.graph.build import grid_jobs
from g2d.settings import ConfigError
from tests.experiment.test_config import MINIMAL

SIZE_2 = {"baselines": {"grpo_group_sizes": [2]}}
FOUR = {"per_device_batch_size": 4}
TWO = {"training": {"processes": 2}}
DIVIDED = {"training": {"processes": 2, "strategy": "fsdp"}}
ONLINE = {"regime": "semi_online_dpo", "steps": [2]}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"dpo": FOUR | {"gradient_accumulation_steps": 3}},
            "dpo.gradient_accumulation_steps=3 cannot be divided among",
        ),
        ({"dpo": {"precompute_reference": True}}, "dpo.precompute_reference needs one process: set training"),
        (
            {"warmup": FOUR | {"gradient_accumulation_steps": 5}},
            "warmup.gradient_accumulation_steps=5 cannot be divided",
        ),
        (
            {"warmup": {"prompts_per_step": 2, "group_sizes": [2], "per_device_batch_size": 4}},
            "warmup: with G=2, prompts_per_step x G / per_device_batch_size=1 cannot be divided among",
        ),
        (
            {"warmup": {"per_device_batch_size": 2, "gradient_accumulation_steps": 2, "group_sizes": [4]}},
            "warmup: each of training.processes=2 would have 2 completions of a step, no multiple of G=4",
        ),
        ({"warmup": {"correction": "m2"}, "engine": {"name": "vllm"}}, "warmup.correction: m2 needs one process"),
        ({"warmup": {"lag": 2}}, "warmup.lag needs one process"),
        ({"warmup": {"retire": {"after": 1}}}, "warmup: retire or resample needs one process"),
        ({"warmup": {"replay": {"buffer": 8, "share": 0.5}}}, "warmup.replay needs one process"),
        ({"warmup": {"iterations": 2, "steps": [0, 2]}}, "warmup: updates_per_generation or iterations above 1"),
        ({"warmup": {"loss": "bnpo"}}, "warmup.loss: bnpo needs one process"),
        (
            {"ablations": {"curious": {"steps": [150], "warmup": {"entropy_coefficient": 0.1}}}},
            "ablations.curious.warmup.entropy_coefficient needs one process",
        ),
        ({"warmup": {"top_entropy_quantile": 0.2}}, "warmup.top_entropy_quantile needs one process"),
        ({"warmup": {"auto": {"every": 10}}}, "warmup.auto needs one process"),
        ({"regimes": {"unpaired": {"regime": "kto"}}}, "regimes.unpaired: KTO needs one process"),
        (
            {"regimes": {"right": FOUR | {"regime": "rft", "gradient_accumulation_steps": 1}}},
            "regimes.right.gradient_accumulation_steps=1 cannot be divided among training.processes=2: change one",
        ),
        (
            {"regimes": {"fresh": ONLINE | {"prompts_per_update": 1}}},
            "fresh.prompts_per_update=1 is less than training",
        ),
        ({"regimes": {"fresh": ONLINE | {"resample": 1}}}, "regimes.fresh: retire or resample needs one process"),
        (
            {"ablations": {"small": {"steps": [0], "dpo": FOUR | {"gradient_accumulation_steps": 1}}}},
            "ablations.small.dpo.gradient_accumulation_steps=1 cannot be divided",
        ),
    ],
)
def test_what_they_cannot_train_is_refused(keys: dict[str, Any], said: str) -> None:
    load(MINIMAL | keys)
    with pytest.raises(ConfigError) as refused:
        load(MINIMAL | keys | TWO)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"training": {"strategy": "fsdp"}}, "training.strategy: fsdp divides a model among processes: set processes"),
        (
            DIVIDED | {"regimes": {"fresh": ONLINE}},
            "regimes.fresh: generates with a whole M0 on every GPU",
        ),
        (DIVIDED | {"engine": {"name": "vllm"}}, "warmup: vLLM needs a whole M0 on every GPU"),
        (DIVIDED | {"regimes": {"unpaired": {"regime": "kto"}}}, "regimes.unpaired: KTO needs one process"),
    ],
)
def test_what_a_divided_model_is_not_for_is_refused(keys: dict[str, Any], said: str) -> None:
    load(MINIMAL | DIVIDED)
    with pytest.raises(ConfigError) as refused:
        load(MINIMAL | keys)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_nothing_that_one_process_computes_depends_on_how_many_there_are() -> None:
    assert load(MINIMAL | TWO).identity == load(MINIMAL | DIVIDED).identity == load(MINIMAL).identity


def test_a_training_asks_for_a_gpu_for_each_and_models_may_differ() -> None:
    large = {"source": "scratch", "settings": DIVIDED}
    config = load(MINIMAL | {"models": {"small": {"source": "scratch"}, "large": large}})
    trained = [job for job in grid_jobs(config) if job.rule == "train_dpo"]
    assert {(job.model, job.devices) for job in trained} == {("small", 1), ("large", 2)}
    assert config.identity["models"]["large"]["settings"] == {}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (SIZE_2 | {"dpo": {"gradient_accumulation_steps": 3}}, "dpo: the rows of a step=12 cannot be divided among"),
        ({"warmup": {"prompts_per_step": 2}}, "warmup: with G=2, the completions of a step=4 cannot be divided among"),
    ],
)
def test_where_the_card_decides_the_rows_of_a_step_are_what_processes_share(keys: dict[str, Any], said: str) -> None:
    load(MINIMAL | keys | {"training": {"processes": 2}})
    with pytest.raises(ConfigError) as refused:
        load(MINIMAL | keys | {"training": {"processes": 8}})
    assert said in str(refused.value)
