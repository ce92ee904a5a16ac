"""Engines: samples belong to their problem and not to their batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from g2d.policies import PolicyRecord, load_tokenizer
from g2d.policies.record import context_limit, end_tokens, ends_in_words
from g2d.problems.prompts import Prompt, token_ids
from g2d.problems.synthetic import generate
from g2d.rollouts.continuous_batching import is_supported
from g2d.rollouts.engine import Completion, Decoding, Engine, Request
from g2d.rollouts.rollout import (
    COLUMNS,
    IDS,
    OF_REWARDS,
    OF_TOKENS,
    FinishReason,
    read_rollouts,
    to_frame,
    write_rollouts,
)
from g2d.rollouts.rollout_keys import Evaluation, HarvestSettings
from g2d.rollouts.sample import evaluation_decoding, sampling
from g2d.rollouts.sampling import choose_tokens, random_stream
from g2d.rollouts.transformers_engine import TransformersEngine
from tests.models import random_model, rollouts_of, tiny_policy, two_ends_policy

HARVEST = HarvestSettings(samples_per_prompt=4, max_completion_length=12, batch_size=16)
GREEDY = Decoding(1, 0.0, 1.0, 12, 16, 0)


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine.of(tiny_policy())


def requests(engine: Engine, n: int) -> list[Request]:
    problems = generate("arithmetic", "train", n, seed=0)
    return [engine.request(p.problem_id, [{"role": "user", "content": p.prompt}]) for p in problems]


def request_of(engine: TransformersEngine, problem_id: str, text: str) -> Request:
    """Ask for the continuation of a text, without the chat template."""
    return Request(problem_id, text, tuple(token_ids(engine.tokenizer, [text])[0]))


def one_by_one(engine: Engine, asked: list[Request], decoding: Decoding) -> list[list[Completion]]:
    """Generate for each request without the others."""
    return [engine.generate([request], decoding)[0] for request in asked]


def table(drawn: list[list[Completion]]) -> pd.DataFrame:
    """Return a row for each completion."""
    return pd.DataFrame(chain.from_iterable(drawn))


def test_a_sample_depends_on_the_seed_and_not_on_the_order(engine: TransformersEngine) -> None:
    asked = requests(engine, 12)
    assert engine.generate([], GREEDY) == []
    decoding = replace(sampling(HARVEST, seed=0), batch_size=7)
    drawn = engine.generate(asked, decoding)
    assert engine.generate(asked[::-1], decoding)[::-1] == drawn
    assert engine.generate(asked, replace(decoding, seed=1)) != drawn
    assert table(drawn[:1])["text"].nunique() > 1


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 9), st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_rows_that_pass_from_sample_to_sample_change_nothing(
    engine: TransformersEngine, lengths: list[int], batch_size: int, budget: int, n: int
) -> None:
    """Prompts of any lengths, any batch: every sample equals the one drawn alone."""
    words = requests(engine, 1)[0].prompt_text.split() * 9
    asked = []
    for i, length in enumerate(lengths):
        asked.append(request_of(engine, str(i), " ".join(words[:length])))
    decoding = Decoding(n, 1.3, 0.9, budget, batch_size, 0)
    drawn = engine.generate(asked, decoding)
    assert drawn == one_by_one(engine, asked, replace(decoding, batch_size=1))
    for completion in chain.from_iterable(drawn):
        assert 1 <= completion.token_count <= budget
        assert completion.finish_reason == "stop" or completion.token_count == budget


def test_a_prompt_longer_than_the_context_names_the_problem(engine: TransformersEngine) -> None:
    limit = engine.model.config.max_position_embeddings
    message = rf"problem a: its {limit + 1} tokens and max_completion_length=12 exceed the {limit} that .* can hold"
    with pytest.raises(ValueError, match=message):
        engine.generate([request_of(engine, "b", "1 +"), request_of(engine, "a", "1 " * limit)], GREEDY)


def own_greedy(engine: TransformersEngine, request: Request, budget: int) -> tuple[str, int]:
    """Text and number of tokens that the model's own `generate` gives for one prompt alone."""
    encoded = engine.tokenizer(request.prompt_text, return_tensors="pt", add_special_tokens=False)
    generated = engine.model.generate(
        **encoded,
        do_sample=False,
        max_new_tokens=budget,
        eos_token_id=sorted(engine.end_ids),
        pad_token_id=0,
        repetition_penalty=1.0,
    )
    tokens = generated[0, encoded["input_ids"].shape[1] :].tolist()
    kept = tokens[:-1] if tokens[-1] in engine.end_ids else tokens
    return engine.tokenizer.decode(kept, skip_special_tokens=True), len(tokens)


@pytest.mark.parametrize(
    "kind",
    ["grouped", "scaled", "sliding", "alternating", "capped", "learned positions", "state space", "causal by column"],
)
def test_every_kind_of_model_answers_as_alone(engine: TransformersEngine, kind: str) -> None:
    """Greedy decoding equals the model's `generate`, and samples equal those drawn alone."""
    model = random_model(kind)
    assert is_supported(model) == (kind not in ("state space", "causal by column"))
    other = TransformersEngine(model, engine.tokenizer, [1, 7, 9])
    asked = []
    for i, request in enumerate(requests(engine, 6)):
        asked.append(request_of(other, request.problem_id, request.prompt_text * (1 + i % 3)))
    greedy = other.generate(asked, Decoding(1, 0.0, 1.0, 20, 4, 0))
    for request, [completion] in zip(asked, greedy, strict=True):
        assert (completion.text, completion.token_count) == own_greedy(other, request, 20)
    decoding = Decoding(3, 1.3, 0.95, 20, 5, 0)
    drawn = other.generate(asked, decoding)
    assert drawn == one_by_one(other, asked, decoding)
    assert set(table(drawn)["finish_reason"]) == {"stop", "length"}


def test_a_prompt_is_read_once_for_its_samples(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    original = engine.model.forward

    def counted(input_ids: torch.Tensor, **arguments: Any) -> Any:
        read.append(tuple(input_ids.shape))
        return original(input_ids, **arguments)

    monkeypatch.setattr(engine.model, "forward", functools.wraps(original)(counted))
    drawn = engine.generate(requests(engine, 3), Decoding(8, 1.3, 1.0, 12, 24, 0))
    passes = pd.DataFrame(read, columns=["rows", "width"])
    of_prompts = passes["width"] > 1
    assert passes[of_prompts]["rows"].tolist() == [3]
    # A finished row is not carried to the end of the longest completion.
    assert passes[~of_prompts]["rows"].sum() < table(drawn)["token_count"].sum()


def test_every_token_that_the_model_declares_ends_a_completion() -> None:
    policy = two_ends_policy()
    engine = TransformersEngine.of(policy)
    assert engine.end_ids == {0, 1}
    assert load_tokenizer(policy).eos_token_id == 1
    completions = table(engine.generate(requests(engine, 12), sampling(HARVEST, seed=0)))
    ended = completions[completions["token_count"] < HARVEST.max_completion_length]
    assert set(ended["finish_reason"]) == {"stop"}


@pytest.mark.parametrize(
    ("config", "generation_config", "ends"),
    [
        ('{"eos_token_id": 7}', None, {1, 7}),
        ('{"text_config": {"eos_token_id": 9}}', None, {1, 9}),
        # 7 may be the default of a class of models.
        ('{"eos_token_id": 7}', '{"eos_token_id": [128001, 128008]}', {1, 128001, 128008}),
        ('{"eos_token_id": 7}', "{}", {1, 7}),
    ],
)
def test_a_completion_ends_at_the_tokens_that_a_file_names(
    tmp_path: Path, config: str, generation_config: str | None, ends: set[int]
) -> None:
    policy = PolicyRecord("mine/base", "mine", "base", base=str(tmp_path))
    (tmp_path / "config.json").write_text(config)
    if generation_config is not None:
        (tmp_path / "generation_config.json").write_text(generation_config)
    assert end_tokens(policy, load_tokenizer(tiny_policy())) == ends


def test_a_completion_ends_at_the_token_that_closes_a_turn_of_the_template(tmp_path: Path) -> None:
    policy = PolicyRecord("mine/base", "mine", "base", base=str(tmp_path))
    tokenizer = load_tokenizer(tiny_policy())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<end_of_turn>"]})
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<end_of_turn>\n{% endfor %}"
    closing = tokenizer.convert_tokens_to_ids("<end_of_turn>")
    assert end_tokens(policy, tokenizer) == {1, closing}
    assert "<end_of_turn>" in ends_in_words(tokenizer, end_tokens(policy, tokenizer))


def test_the_context_limit_of_a_model_with_other_parts_is_that_of_its_text(tmp_path: Path) -> None:
    policy = PolicyRecord("mine/base", "mine", "base", base=str(tmp_path))
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 512}}')
    assert context_limit(policy) == 512
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 256, "text_config": {}}')
    assert context_limit(policy) == 256
    (tmp_path / "config.json").write_text("{}")
    assert context_limit(policy) is None


def test_sampling_follows_the_distribution() -> None:
    """Shares of 20,000 draws against softmax(logits / T), within five standard errors."""
    logits = torch.tensor([2.0, 0.0, 1.0, -3.0])
    n, temperature = 20_000, 1.3
    uniforms = torch.from_numpy(np.random.default_rng(0).random(n))
    shares = torch.bincount(choose_tokens(logits.expand(n, -1), uniforms, temperature, 1.0), minlength=4) / n
    expected = torch.softmax(logits / temperature, -1)
    assert ((shares - expected).abs() < 5 * (expected * (1 - expected) / n).sqrt()).all()


LOGITS = st.lists(st.floats(-5, 5) | st.just(-math.inf), min_size=2, max_size=8).filter(
    lambda logits: max(logits) > -math.inf
)
ALMOST_ONE = math.nextafter(1, 0)


@given(LOGITS, st.floats(0, 1, exclude_max=True) | st.just(ALMOST_ONE), st.floats(0.05, 1))
def test_a_nucleus_sample_lies_in_the_nucleus(logits: list[float], u: float, top_p: float) -> None:
    chosen = choose_tokens(torch.tensor([logits]), torch.tensor([u], dtype=torch.float64), 1.0, top_p)
    probabilities = torch.softmax(torch.tensor(logits).double(), -1)
    assert probabilities[chosen] > 0
    likelier = probabilities[probabilities > probabilities[chosen]].sum()
    assert likelier < top_p


def test_temperature_zero_takes_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.0], [5.0, 3.0, 2.0]])
    assert choose_tokens(logits, torch.tensor([0.9, 0.9]), 0.0, 1.0).tolist() == [1, 0]


def test_random_numbers_are_uniform_and_depend_on_seed_problem_and_sample() -> None:
    """Mean and variance within five standard errors; a longer completion begins like a shorter one."""
    decoding = Decoding(1, 1.0, 1.0, 20_000, 1, 0)
    long = random_stream(decoding, "a", 0)
    assert ((long >= 0) & (long < 1)).all()
    assert abs(long.mean() - 1 / 2) < 5 / (12 * len(long)) ** 0.5
    assert abs(long.var() - 1 / 12) < 5 / (180 * len(long)) ** 0.5
    assert (random_stream(replace(decoding, max_completion_length=10), "a", 0) == long[:10]).all()
    for other in ((decoding, "a", 1), (decoding, "b", 0), (replace(decoding, seed=1), "a", 0)):
        assert (random_stream(*other) != long).any()


def test_drawn_rollouts_are_complete_records(tmp_path: Path) -> None:
    problems = generate("arithmetic", "train", 5, seed=0)
    drawn = rollouts_of(tiny_policy(), problems, Prompt(), sampling(HARVEST, seed=0), token_ids=True)
    write_rollouts(tmp_path / "rollouts.parquet", drawn)
    frame = read_rollouts(tmp_path / "rollouts.parquet")
    kept = pyarrow.parquet.read_schema(tmp_path / "rollouts.parquet")
    for name in IDS:
        assert str(kept.field(name).type) == "list<element: int32>"
    assert list(frame.columns) == [name for name in COLUMNS if name not in OF_REWARDS]
    pd.testing.assert_frame_equal(frame, to_frame(drawn))
    assert list(frame.problem_id) == np.repeat([problem.problem_id for problem in problems], 4).tolist()
    assert ((frame.reward == 1) == (frame.verdict == "correct")).all()
    without = rollouts_of(tiny_policy(), problems, Prompt(), sampling(HARVEST, seed=0))  # not for training
    assert to_frame(without).columns.tolist() == frame.columns.drop([*OF_TOKENS]).tolist()


def test_evaluation_is_greedy_unless_samples_are_asked_for() -> None:
    assert evaluation_decoding(Evaluation()).temperature == 0
    settings = Evaluation.model_validate({"sampled": {"n": 3, "temperature": 0.6, "top_p": 0.95}})
    problems = generate("arithmetic", "test", 4, seed=0)
    decoding = evaluation_decoding(settings.model_copy(update={"max_completion_length": 12}))
    drawn = to_frame(rollouts_of(tiny_policy(), problems, Prompt(), decoding))
    assert drawn["sample"].tolist() == [0, 1, 2] * 4
    assert set(drawn["temperature"]) == {0.6}
    assert set(drawn["seed"]) == {0}


def test_a_file_that_is_no_rollouts_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.parquet"
    write_rollouts(file, [])
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"rollouts\.parquet: "):
        read_rollouts(file)
    pd.DataFrame({"problem_id": ["a"]}).to_parquet(file)
    with pytest.raises(ValueError, match=r"rollouts\.parquet: .*lack the column"):
        read_rollouts(file)


class Scripted:
    """An engine with given completions."""

    name = "scripted"

    def __init__(
        self, texts: Sequence[str], reasons: Sequence[FinishReason] | None = None, *, in_thinking: bool = False
    ) -> None:
        self.in_thinking = in_thinking
        self.completions = []
        for text, reason in zip(texts, reasons or ["stop"] * len(texts), strict=True):
            self.completions.append(Completion(text, 1, reason, (1,)))

    def request(self, problem_id: str, shown: Any) -> Request:
        return Request(problem_id, "", (1,), self.in_thinking)

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        return [self.completions] * len(requests)


def test_completions_are_judged_with_their_finish_reasons() -> None:
    [problem] = generate("arithmetic", "train", 1, seed=0)
    texts = [f"\\boxed{{{problem.answer}}}", "\\boxed{1234}", f"It is {problem.answer}.", "Let me think"]
    engine = Scripted(texts, ["stop", "stop", "stop", "length"])
    drawn = to_frame(rollouts_of(tiny_policy(), [problem], Prompt(), sampling(HARVEST, seed=0), engine=engine))
    assert drawn["verdict"].tolist() == ["correct", "incorrect", "no_boxed", "truncated"]
    assert drawn["completion_text"].tolist() == texts
    assert set(drawn["engine"]) == {"scripted"}


def test_completions_are_judged_with_the_thinking_that_began_in_the_prompt() -> None:
    [problem] = generate("arithmetic", "train", 1, seed=0)
    answer = f"\\boxed{{{problem.answer}}}"
    engine = Scripted([answer, f"Perhaps.</think>{answer}"], in_thinking=True)
    drawn = to_frame(rollouts_of(tiny_policy(), [problem], Prompt(), sampling(HARVEST, seed=0), engine=engine))
    assert drawn["verdict"].tolist() == ["unfinished_thinking", "correct"]


def test_text_that_utf8_cannot_hold_does_not_stop_a_harvest(tmp_path: Path) -> None:
    [problem] = generate("arithmetic", "train", 1, seed=0)
    texts = ["lone \ud800 surrogate", "\x00 and \u202e", "\\boxed{\udfff}", "ok"]
    drawn = rollouts_of(tiny_policy(), [problem], Prompt(), sampling(HARVEST, seed=0), engine=Scripted(texts))
    write_rollouts(tmp_path / "rollouts.parquet", drawn)
    assert read_rollouts(tmp_path / "rollouts.parquet").completion_text[0] == "lone ? surrogate"
