"""The rows of a pass where the card decides: the most for which the forecast fits, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformers import LlamaConfig

from g2d.memory.estimate import Forecast, MemoryEstimate, Term
from g2d.memory.passes import Counted, model_shape
from g2d.memory.workload import Training
from g2d.policies.model_keys import Lora
from g2d.rollouts.rollout_keys import EngineSettings

LLAMA = LlamaConfig(vocab_size=300, hidden_size=64, intermediate_size=160, num_hidden_layers=4, num_attention_heads=4)
ENGINE = EngineSettings(name="transformers")
ON_CARD = Forecast(model_shape(LLAMA, Lora()), Counted(LLAMA, Lora()), ENGINE, 80 * 2**30, prompt_tokens=100)
PAIRS = Training(budget=500, rows=8, per_row=2, reference=True, update=12)


def needed(training: Training) -> int:
    return ON_CARD.training(training).total


def chosen(training: Training, free: int) -> Training:
    return ON_CARD.divided(training, free)


def test_all_doubt_is_added_but_to_the_share_of_vllm() -> None:
    need = MemoryEstimate("grpo", [Term("weights", 1000, ""), Term("vLLM", 500, "")], card=2000)
    assert need.has_room(1640)  # 1.14 x 1000 + 500
    assert not need.has_room(1639)
    assert not replace(need, needs_more=True).has_room(2000)


@pytest.mark.parametrize(("most", "expected"), [(12, 12), (11, 6), (5, 4), (1, 1)])
def test_the_most_rows_that_fit_and_divide_the_update_are_taken(most: int, expected: int) -> None:
    """Room for exactly `most` pairs with all doubt; passes of an update are alike."""
    free = int(1.14 * needed(PAIRS.with_units(most))) + 1
    assert chosen(PAIRS, free) == PAIRS.with_units(expected)
    by_length = replace(PAIRS, passes="by_length")
    assert chosen(by_length, free) == by_length.with_units(most)


def test_one_row_is_tried_if_none_fits() -> None:
    assert chosen(PAIRS, 1000).units == 1


def test_a_number_stays_a_number() -> None:
    given = replace(PAIRS, update=None)
    assert chosen(given, 1000) == chosen(given, 2**40) == given


def test_activations_are_kept_if_they_fit_with_the_most_rows() -> None:
    choose = replace(PAIRS, choose_checkpointing=True)
    without = needed(replace(PAIRS.with_units(12), checkpointing=False))
    assert without > needed(PAIRS.with_units(12))
    assert chosen(choose, int(1.14 * without) + 1) == replace(choose.with_units(12), checkpointing=False)
    assert chosen(choose, int(1.14 * without) - 1) == choose.with_units(12)
    assert chosen(PAIRS, 2**40).checkpointing  # gradient_checkpointing: true
