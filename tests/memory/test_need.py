"""The sum of what a job needs on a card."""

from __future__ import annotations

from g2d.memory.model_shape import model_shape
from g2d.memory.need import Card, Need, drawing_need, training_need
from g2d.memory.passes import Counted
from g2d.memory.workload import Drawing, Training
from g2d.policies.settings import Lora
from g2d.rollouts.settings import EngineSettings
from tests.memory.test_passes import llama

CARD = Card(memory=2**34, prompt_tokens=20)


def drawing(engine: EngineSettings) -> Need:
    shape, counted = model_shape(llama(2), Lora()), Counted(llama(2), Lora())
    return drawing_need(Drawing("harvest", "harvest", 50, 8, 4, None), shape, counted, engine, CARD)


def training(engine: EngineSettings, *, float32_head: bool = False) -> Need:
    shape, counted = model_shape(llama(2), Lora()), Counted(llama(2), Lora())
    return training_need(
        Training(budget=50, rows=4, at_once=4, batch=4, float32_head=float32_head), shape, counted, engine, CARD
    )


def test_a_cache_has_a_column_for_every_token_and_with_a_graph_those_of_its_size() -> None:
    """20 tokens of a prompt and 50 drawn: 70 columns, and 96 of them with a graph."""
    plain, graph = ({part.name: part for part in drawing(EngineSettings(cuda_graph=on)).parts} for on in (False, True))
    assert plain["keys and values"].how.startswith("8 x 70 tokens x ")
    assert graph["keys and values"].how.startswith("8 x 96 tokens x ")
    assert graph["keys and values"].bytes > plain["keys and values"].bytes
    assert graph["largest moment"].bytes > plain["largest moment"].bytes


def test_what_a_graph_keeps_is_beside_the_activations() -> None:
    plain, graph = (training(EngineSettings(cuda_graph=on)) for on in (False, True))
    [kept] = [part for part in graph.parts if part.name == "generation, with its graph"]
    assert kept.how == "keys and values of 4 x 96 tokens"
    beyond = sum(part.bytes for part in plain.parts if part.name.startswith("generation"))
    assert graph.total == plain.total - beyond + kept.bytes


def test_a_head_in_float32_is_four_bytes_a_weight_more() -> None:
    plain, more = (training(EngineSettings(), float32_head=on) for on in (False, True))
    assert more.total == plain.total + 4 * llama(2).vocab_size * llama(2).hidden_size
