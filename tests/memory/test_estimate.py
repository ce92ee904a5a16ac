"""The sum of what a job needs on a card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSequenceClassification

from g2d.memory.estimate import Forecast, MemoryEstimate
from g2d.memory.passes import Counted, model_shape
from g2d.memory.workload import SamplingLoad, ScoringLoad, Training
from g2d.policies.model_keys import Lora
from g2d.rewards.model import RewardModel
from g2d.rollouts.rollout_keys import EngineSettings
from tests.memory.test_passes import llama
from tests.rewards.models import reward_model

ENGINE = EngineSettings()
ADAPTER = Lora()
HARVEST = SamplingLoad("harvest", "harvest", 50, 8, 4, None)


def forecast(engine: EngineSettings = ENGINE, lora: Lora = ADAPTER) -> Forecast:
    return Forecast(model_shape(llama(2), lora), Counted(llama(2), lora), engine, memory=2**34, prompt_tokens=20)


def training(engine: EngineSettings) -> MemoryEstimate:
    return forecast(engine).training(Training(budget=50, rows=4, at_once=4, batch=4))


def test_a_cache_has_a_column_for_every_token() -> None:
    """20 tokens of a prompt and 50 drawn: 70 columns."""
    [cache] = [term for term in forecast().sampling(HARVEST).terms if term.name == "keys and values"]
    assert cache.how.startswith("8 x 70 tokens x ")


@pytest.mark.parametrize(("at_once", "sequences"), [(128, 128), (256, 1024), (512, 1024)])
def test_vllm_beside_a_trainer_has_its_default_of_sequences_unless_fewer_are_asked_for(
    at_once: int, sequences: int
) -> None:
    engine = EngineSettings(name="vllm", training_gpu_memory_utilization=0.9)
    on_80_gib = replace(forecast(engine), memory=80 * 2**30)
    need = on_80_gib.training(Training(budget=50, rows=4, at_once=at_once))
    assert f"{sequences} side by side" in " ".join(need.notes)


def test_a_group_that_no_pass_divides_is_counted_whole() -> None:
    in_rows_of_two = Training(budget=50, rows=2)
    in_groups = replace(in_rows_of_two, group_rows=16)
    assert forecast().training(in_groups).total == forecast().training(replace(in_rows_of_two, rows=16)).total


JUDGED = {"name": "vllm", "gpu_memory_utilization": 0.5, "training_gpu_memory_utilization": 0.3}


@pytest.mark.parametrize("engine", [EngineSettings(), EngineSettings(**JUDGED)], ids=lambda engine: engine.name)
def test_a_reward_model_is_counted_beside_the_policy(tmp_path: Path, engine: EngineSettings) -> None:
    """Its weights in bfloat16 stay; its pass counts if it needs more than what is free while it scores."""
    model = AutoModelForSequenceClassification.from_pretrained(reward_model(tmp_path, hidden_size=512))
    small, large = [RewardModel(reward="model", path=str(tmp_path), batch_size=rows) for rows in (1, 4096)]

    def added(reward: RewardModel) -> list[dict[str, int]]:
        scorers = (ScoringLoad("judge", reward),)
        trained = Training(budget=50, rows=4, at_once=4, batch=4)
        estimates = [forecast(engine).training(replace(trained, scorers=scorers))]
        estimates.append(forecast(engine).sampling(replace(HARVEST, scorers=scorers)))
        totals = [forecast(engine).training(trained).total, forecast(engine).sampling(HARVEST).total]
        terms = [{term.name: term.bytes for term in estimate.terms if term.of_reward} for estimate in estimates]
        for estimate, before, of_reward in zip(estimates, totals, terms, strict=True):
            assert estimate.total == before + sum(of_reward.values())
        return terms

    for terms in added(small) + added(large):
        assert terms["reward model judge"] == 2 * model.num_parameters()
    for terms in added(large):
        assert terms["scoring by judge, beyond these"] > 2**30


NONE = Lora.model_validate("none")


def bytes_of(need: MemoryEstimate) -> dict[str, int]:
    return {term.name: term.bytes for term in need.terms}


def all_weights(**changes: Any) -> tuple[int, Counted, dict[str, int]]:
    """Parameters, passes, and the terms of a training of all of them."""
    on_card = forecast(lora=NONE)
    need = on_card.training(Training(budget=50, rows=4, **changes))
    return on_card.shape.parameters, on_card.counted, bytes_of(need)


def test_all_weights_have_four_numbers_of_four_bytes_each() -> None:
    """Weight, gradient and AdamW's two averages."""
    n, _, terms = all_weights()
    assert n == model_shape(llama(2), Lora()).parameters
    assert terms["weights, gradients, Adam"] == 16 * n
    assert not {"weights", "adapter, gradient, Adam", "reference"} & terms.keys()


def test_a_step_of_adamw_has_as_many_intermediates_as_weights() -> None:
    n, _, terms = all_weights()
    held = terms["activations kept"] + terms["largest peak"]
    assert terms.get("AdamW's step, beyond these", 0) == max(0, 4 * n - held)


@pytest.mark.parametrize("of_reference", ["reference", "reference_model"])
def test_a_reference_of_all_weights_has_four_bytes_each(of_reference: str) -> None:
    n, _, terms = all_weights(**{of_reference: True})
    assert terms["reference"] == 4 * n


def test_a_pass_of_all_weights_keeps_them_in_bfloat16_and_the_gradient_of_the_head() -> None:
    _, counted, _ = all_weights()
    assert counted.training(1, 1).kept > Counted(llama(2), Lora()).training(1, 1).kept  # weights cast to bfloat16
    head = 6 * llama(2).vocab_size * llama(2).hidden_size
    assert counted.head(10) == Counted(llama(2), Lora()).head(10) + head


def test_completions_of_all_weights_need_no_adapter() -> None:
    on_card = forecast(lora=NONE)
    terms = bytes_of(on_card.sampling(HARVEST))
    assert terms["weights"] == 2 * on_card.shape.parameters and "adapter" not in terms
