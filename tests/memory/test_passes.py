"""Memory of a model on a card, from its shapes, compared with values by hand and with torch's allocator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from g2d.memory.passes import Counted, model_config, model_shape
from g2d.policies.model_keys import Lora
from tests.workflow import forked

WIDTH = 64
INNER = 160
WORDS = 300
HEADS = 4
SHARED = 2


def llama(blocks: int = 6) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=blocks,
        num_attention_heads=HEADS,
        num_key_value_heads=SHARED,
        tie_word_embeddings=True,
    )


def test_parameters_adapter_and_cache_by_hand() -> None:
    narrow = SHARED * (WIDTH // HEADS)  # keys, values
    matrices = [(WIDTH, WIDTH), (WIDTH, narrow), (WIDTH, narrow), (WIDTH, WIDTH)]  # q, k, v, o
    matrices += [(WIDTH, INNER), (WIDTH, INNER), (INNER, WIDTH)]  # gate, up, down
    block = sum(a * b for a, b in matrices) + 2 * WIDTH
    shape = model_shape(llama(6), Lora(r=8))
    assert shape.parameters == WORDS * WIDTH + 6 * block + WIDTH
    assert shape.adapter == 6 * sum(8 * (a + b) for a, b in matrices)
    assert shape.cache_per_token == 6 * 2 * narrow


def test_only_the_configuration_of_a_file_is_read(tmp_path: Path) -> None:
    llama(3).to_json_file(tmp_path / "config.json")
    assert model_shape(model_config(tmp_path / "config.json"), Lora()) == model_shape(llama(3), Lora())
    (tmp_path / "config.json").write_text('{"model_type": "no such thing"}')
    with pytest.raises(ValueError, match="no such thing"):
        model_config(tmp_path / "config.json")


@pytest.mark.parametrize("name", ["training", "reading", "sampling", "scoring"])
def test_two_short_models_predict_the_whole_model(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    followed = getattr(Counted(llama(7), Lora()), name)(3, 40)
    for short in ("SHORT", "SHORT_READING"):
        monkeypatch.setattr(f"g2d.memory.passes.{short}", (1, 7))  # now the whole one is run
    whole = getattr(Counted(llama(7), Lora()), name)(3, 40)
    assert followed.kept == pytest.approx(whole.kept, rel=0.01)
    assert followed.peak == pytest.approx(whole.peak, rel=0.01)


def test_checkpointing_keeps_a_hidden_state_of_every_block_and_autocast_its_adapter() -> None:
    """Both are in bfloat16; only these grow with the number of blocks."""
    of_2_blocks = Counted(llama(2), Lora()).training(rows=4, tokens=50).kept
    of_7_blocks = Counted(llama(7), Lora()).training(rows=4, tokens=50).kept
    adapter = model_shape(llama(1), Lora()).adapter
    assert of_7_blocks - of_2_blocks == 5 * (4 * 50 * WIDTH + adapter) * 2


def test_keys_and_values_of_a_generation() -> None:
    shape = model_shape(llama(5), Lora())
    counted = Counted(llama(5), Lora())
    drawn = 6 * 34 * (8 + 8)  # tokens and their random numbers
    expected = 6 * 33 * shape.cache_per_token * 2 + drawn
    assert counted.sampling(rows=6, columns=33).kept == pytest.approx(expected, rel=0.02)


def test_a_real_pass_allocates_what_was_forecast(capfd: pytest.CaptureFixture[str]) -> None:
    """DPO with its reference, as on a GPU (bfloat16, autocast, checkpointing), by the records of torch's allocator."""
    case = ["benchmarks/memory.py", "--case", "tiny", "dpo", "gpu"]
    assert forked.train(case, Path(__file__).parents[2]) == 0
    measured: dict[str, Any] = json.loads(capfd.readouterr().out.strip().splitlines()[-1])
    assert measured["forecast"] == pytest.approx(measured["measured"], rel=0.1)
