"""Keys and values that query heads share, and the prefix that prompts share, change no completion."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from g2d.rollouts import continuous_batching, sampling
from g2d.rollouts.continuous_batching import PREFIX, ContinuousBatch, Rows, Sample, shared_prefix, shares_keys
from g2d.rollouts.engine import Decoding
from g2d.rollouts.sampling import random_stream
from tests.models import random_model

KINDS = ["grouped", "sliding", "alternating", "learned positions"]
ENDS = range(0, 300, 15)
GREEDY = Decoding(1, 0.0, 1.0, 20, 4, 0)
SAMPLED = Decoding(3, 1.3, 1.0, 20, 5, 0)
COMMON = np.random.default_rng(1).integers(10, 300, PREFIX + 3).tolist()


def prompts_behind(common: list[int], *lengths: int) -> list[list[int]]:
    numbers = np.random.default_rng(0)
    return [common + numbers.integers(10, 300, length).tolist() for length in lengths]


def drawn(model: Any, prompts: list[list[int]], decoding: Decoding) -> dict[Sample, list[int]]:
    samples = [*product(range(len(prompts)), range(decoding.samples_per_prompt))]

    def stream(sample: Sample) -> np.ndarray:
        return random_stream(decoding, str(sample[0]), sample[1])

    with torch.inference_mode():
        return ContinuousBatch(model, prompts, decoding, stream, ENDS).complete(samples)


@pytest.mark.parametrize("decoding", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
def test_completions_do_not_depend_on_what_is_shared(
    kind: str, decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(kind)
    prompts = prompts_behind(COMMON, 1, 12, 5, 30, 2, 7)
    made = []
    for shortest in (PREFIX, 10**9):
        monkeypatch.setattr(continuous_batching, "PREFIX", shortest)
        made.append(drawn(model, prompts, decoding))
    assert made[0] == made[1]
    assert len(set(map(tuple, made[0].values()))) >= len(prompts)


@pytest.mark.parametrize("kind", ["grouped", "learned positions"])
def test_a_step_may_ask_for_more_columns_than_there_are(kind: str) -> None:
    """A batch goes on counting after its longest row has ended, until more rows are free."""
    model = random_model(kind)
    latest = []
    for width in (4, 9):  # of 8 columns
        rows = Rows(model, GREEDY, ENDS, 2, 8)
        with torch.inference_mode():
            rows.join([[11, 12, 13]], torch.arange(2), torch.zeros(2).long(), torch.zeros(2, 20).double())
            rows.step(width)
        latest.append(rows.latest.tolist())
    assert latest[0] == latest[1]


def test_the_tokens_that_all_prompts_share_are_read_once() -> None:
    model = random_model("grouped")
    read = []
    forward = model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        read.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    model.forward = counted
    drawn(model, prompts_behind(COMMON, 4, 3, 4), replace(SAMPLED, batch_size=9))
    assert [shape for shape in read if shape[1] > 1] == [(1, len(COMMON)), (3, 4)]


def test_keys_and_values_are_not_repeated_for_query_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with separate keys per head keeps its attention."""
    calls = []
    monkeypatch.setitem(
        ALL_ATTENTION_FUNCTIONS,
        continuous_batching.BY_ROW,
        lambda *args, **kwargs: calls.append(args[2].shape[1]) or continuous_batching.attend(*args, **kwargs),
    )
    for kind, heads in (("grouped", {2}), ("learned positions", set())):
        calls.clear()
        model = random_model(kind)
        drawn(model, prompts_behind([], 5, 9), GREEDY)
        assert (set(calls), shares_keys(model)) == (heads, bool(heads))
        assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        (prompts_behind(COMMON, 4, 9), len(COMMON)),
        ([[*COMMON, 7], [*COMMON, 8], [9, *COMMON]], 0),
        ([COMMON, [*COMMON, 8]], len(COMMON) - 1),  # the last token is read for its logits
        ([COMMON], len(COMMON) - 1),
        ([COMMON[:PREFIX], COMMON[:PREFIX]], 0),  # too few to be worth it
    ],
)
def test_the_prefix_of_prompts(prompts: list[list[int]], expected: int) -> None:
    assert shared_prefix(random_model("grouped"), prompts) == COMMON[:expected]
    for kind in ("sliding", "alternating"):
        assert shared_prefix(random_model(kind), prompts) == []


def test_the_token_found_by_blocks_is_that_of_the_whole_sum() -> None:
    """Boundaries excepted: where both look the number up among the same 5,000 sums, rounding moves none of 2,000."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2000, 5000, generator=generator)
    logits[0, 1:] = -torch.inf
    logits[1, :-1] = -torch.inf
    uniforms = torch.rand(2000, generator=generator, dtype=torch.float64)
    uniforms[:4] = torch.tensor([0.0, 0.0, 0.0, 1 - 2.0**-53], dtype=torch.float64)
    uniforms[4] = 1 - 2.0**-53
    cumulative = torch.softmax(logits.double() / 1.3, dim=-1).cumsum(dim=-1)
    expected = torch.searchsorted(cumulative, uniforms.unsqueeze(-1) * cumulative[:, -1:], right=True).squeeze(-1)
    chosen = sampling.choose_tokens(logits, uniforms, 1.3, 1.0)
    assert chosen[:2].tolist() == [0, 4999]
    same = chosen == expected
    assert same[5:].float().mean() > 0.995
    assert (logits.gather(-1, chosen.unsqueeze(-1)) > -torch.inf).all()
