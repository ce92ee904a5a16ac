"""Engines: samples belong to their problem and not to their batch; recorded completions replay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g2d.config import Evaluation, Harvest, Prompt
from g2d.policies import Policy
from g2d.problems.synthetic import generate
from g2d.rollouts.draw import draw_rollouts, evaluation_decoding, sampling
from g2d.rollouts.engine import Decoding, Request
from g2d.rollouts.replay_engine import ReplayEngine
from g2d.rollouts.rollout import COLUMNS, read_rollouts, to_frame, write_rollouts
from g2d.rollouts.transformers_engine import InverseTransformSampler, TransformersEngine, random_stream
from tests.models import tiny_policy

HARVEST = Harvest(samples_per_prompt=4, max_completion_length=12, batch_size=16)
GREEDY = Decoding(1, 0.0, 1.0, 12, 16, 0)


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine.of(tiny_policy())


def requests(engine: TransformersEngine, n: int) -> list[Request]:
    problems = generate("arithmetic", "train", n, seed=0)
    return [Request(p.problem_id, engine.render([{"role": "user", "content": p.prompt}])) for p in problems]


def test_a_sample_does_not_depend_on_batch_order_or_company(engine: TransformersEngine) -> None:
    asked = requests(engine, 12)
    drawn = engine.generate(asked, sampling(HARVEST, seed=0))
    other_batches = engine.generate(asked, sampling(HARVEST.model_copy(update={"batch_size": 7}), seed=0))
    backwards = engine.generate(asked[::-1], sampling(HARVEST, seed=0))[::-1]
    alone = [engine.generate([request], sampling(HARVEST, seed=0))[0] for request in asked]
    assert drawn == other_batches == backwards == alone
    assert drawn != engine.generate(asked, sampling(HARVEST, seed=1))
    assert len({completion.text for completion in drawn[0]}) > 1


def test_no_requests_give_no_completions(engine: TransformersEngine) -> None:
    assert engine.generate([], GREEDY) == []


def test_greedy_decoding_is_transformers_own(engine: TransformersEngine) -> None:
    asked = requests(engine, 6)
    for request, [completion] in zip(asked, engine.generate(asked, GREEDY), strict=True):
        ids = engine.tokenizer(request.prompt_text, return_tensors="pt", add_special_tokens=False)
        own = engine.model.generate(**ids, do_sample=False, max_new_tokens=12)[0, ids["input_ids"].shape[1] :]
        assert completion.text == engine.tokenizer.decode(own, skip_special_tokens=True)


def test_finish_reason_and_token_count(engine: TransformersEngine) -> None:
    asked = requests(engine, 12)
    short = [c for [c] in engine.generate(asked, Decoding(1, 0.0, 1.0, 2, 16, 0))]
    assert {c.finish_reason for c in short} == {"length"}
    assert {c.token_count for c in short} == {2}
    long = [c for [c] in engine.generate(asked, Decoding(1, 0.0, 1.0, 60, 16, 0))]
    for completion in long:
        ended = completion.finish_reason == "stop"
        tokens = len(engine.tokenizer(completion.text, add_special_tokens=False)["input_ids"])
        assert completion.token_count == tokens + ended  # the end-of-turn token is one of them


def test_sampling_follows_the_distribution() -> None:
    """Shares of 20,000 draws against softmax(logits / T), within five standard errors."""
    logits = torch.tensor([2.0, 0.0, 1.0, -3.0])
    n, temperature = 20_000, 1.3
    uniforms = np.random.default_rng(0).random((n, 1))
    sampler = InverseTransformSampler(uniforms, prompt_width=3, temperature=temperature, top_p=1.0)
    scores = sampler(torch.zeros((n, 3), dtype=torch.long), logits.expand(n, -1))
    shares = torch.bincount(scores.argmax(-1), minlength=4) / n
    expected = torch.softmax(logits / temperature, -1)
    assert ((shares - expected).abs() < 5 * (expected * (1 - expected) / n).sqrt()).all()


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.floats(0, 1, exclude_max=True), st.floats(0.05, 1))
def test_a_nucleus_sample_lies_in_the_nucleus(logits: list[float], u: float, top_p: float) -> None:
    sampler = InverseTransformSampler(np.array([[u]]), prompt_width=1, temperature=1.0, top_p=top_p)
    scores = sampler(torch.zeros((1, 1), dtype=torch.long), torch.tensor([logits]))
    kept = scores[0].isfinite()
    assert kept.sum() == 1
    probabilities = torch.softmax(torch.tensor(logits).double(), -1)
    likelier = probabilities[probabilities > probabilities[kept]].sum()
    assert likelier < top_p


def test_random_numbers_belong_to_seed_problem_and_sample() -> None:
    decoding = sampling(HARVEST, seed=0)
    base = random_stream(decoding, "a", 0)
    assert (base == random_stream(decoding, "a", 0)).all()
    others = [(decoding, "a", 1), (decoding, "b", 0), (sampling(HARVEST, seed=1), "a", 0)]
    assert all((base != random_stream(*other)).any() for other in others)


def test_drawn_rollouts_are_complete_records(tmp_path: Path) -> None:
    problems = generate("arithmetic", "train", 5, seed=0)
    drawn = draw_rollouts(tiny_policy(), problems, Prompt(), sampling(HARVEST, seed=0))
    write_rollouts(tmp_path / "rollouts.parquet", drawn)
    frame = read_rollouts(tmp_path / "rollouts.parquet")
    assert list(frame.columns) == list(COLUMNS)
    pd.testing.assert_frame_equal(frame, to_frame(drawn))
    assert list(frame.problem_id) == [p.problem_id for p in problems for _ in range(4)]
    assert ((frame.reward == 1) == (frame.verdict == "correct")).all()


def test_evaluation_is_greedy_unless_samples_are_asked_for() -> None:
    assert evaluation_decoding(Evaluation()).temperature == 0
    settings = Evaluation.model_validate({"sampled": {"n": 3, "temperature": 0.6, "top_p": 0.95, "seed": 7}})
    problems = generate("arithmetic", "test", 4, seed=0)
    decoding = evaluation_decoding(settings.model_copy(update={"max_completion_length": 12}))
    drawn = draw_rollouts(tiny_policy(), problems, Prompt(), decoding)
    assert [(r.sample, r.temperature, r.seed) for r in drawn] == [(j, 0.6, 7) for _ in problems for j in range(3)]


def test_a_truncated_rollout_file_is_refused_by_name(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "rollouts.parquet", [])
    content = (tmp_path / "rollouts.parquet").read_bytes()
    (tmp_path / "rollouts.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"rollouts\.parquet: not a readable file of rollouts"):
        read_rollouts(tmp_path / "rollouts.parquet")


def test_rollouts_without_a_column_are_refused_by_name(tmp_path: Path) -> None:
    pd.DataFrame({"problem_id": ["a"]}).to_parquet(tmp_path / "rollouts.parquet")
    with pytest.raises(ValueError, match=r"rollouts\.parquet: .*lack the column level"):
        read_rollouts(tmp_path / "rollouts.parquet")


def recorded(path: Path, rows: list[dict[str, object]]) -> Policy:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Policy("theirs/base", "theirs", "base", base=str(path), settings={"source": "recorded"})


def test_recorded_completions_are_judged_like_any_other(tmp_path: Path) -> None:
    [problem] = generate("arithmetic", "train", 1, seed=0)
    texts = [f"\\boxed{{{problem.answer}}}", "\\boxed{1234}", f"It is {problem.answer}.", "Let me think"]
    rows: list[dict[str, object]] = [{"problem_id": problem.problem_id, "completion": text} for text in texts]
    rows[3]["finish_reason"] = "length"
    policy = recorded(tmp_path / "theirs.jsonl", rows)
    drawn = draw_rollouts(policy, [problem], Prompt(), sampling(HARVEST, seed=0))
    assert [r.verdict for r in drawn] == ["correct", "incorrect", "no_boxed", "truncated"]
    assert [r.completion_text for r in drawn] == texts
    assert {r.engine for r in drawn} == {"replay"}


def test_text_that_utf8_cannot_hold_does_not_stop_a_harvest(tmp_path: Path) -> None:
    [problem] = generate("arithmetic", "train", 1, seed=0)
    texts = ["lone \ud800 surrogate", "\x00 and \u202e", "\\boxed{\udfff}", "ok"]
    policy = recorded(tmp_path / "theirs.jsonl", [{"prompt": problem.prompt, "completion": text} for text in texts])
    drawn = draw_rollouts(policy, [problem], Prompt(), sampling(HARVEST, seed=0))
    write_rollouts(tmp_path / "rollouts.parquet", drawn)
    assert read_rollouts(tmp_path / "rollouts.parquet").completion_text[0] == "lone ? surrogate"


def test_too_few_recorded_completions_name_the_problem(tmp_path: Path) -> None:
    [problem] = generate("arithmetic", "train", 1, seed=0)
    policy = recorded(tmp_path / "theirs.jsonl", [{"prompt": problem.prompt, "completion": "x"}])
    with pytest.raises(ValueError, match=f"{problem.problem_id} has 1 recorded completions but samples_per_prompt"):
        draw_rollouts(policy, [problem], Prompt(), sampling(HARVEST, seed=0))


def test_a_recorded_file_without_its_columns_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "theirs.jsonl", [{"text": "x"}])
    with pytest.raises(ValueError, match=r"theirs\.jsonl, row 1: lacks completion"):
        ReplayEngine(tmp_path / "theirs.jsonl")
