"""The divergence from M0 against the one that is summed over all answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from g2d.policies import load_model
from g2d.problems.prompts import Prompt, conversation
from g2d.problems.synthetic import generate
from g2d.rollouts import divergence
from g2d.rollouts.divergence import divergences, own_answers
from g2d.rollouts.engine import Decoding, Request
from g2d.rollouts.transformers_engine import TransformersEngine
from tests.models import adapted, random_model, tiny_policy

VOCABULARY, END, BUDGET = 5, 0, 3
PROMPT = [7, 11, 13]


class Few:
    """A model with only the first `VOCABULARY` tokens."""

    def __init__(self, seed: int) -> None:
        self.model = random_model("grouped")
        torch.manual_seed(seed)
        self.model.lm_head.weight.data.normal_(std=1.0)
        self.device, self.config = self.model.device, self.model.config

    def __call__(self, **inputs: torch.Tensor):
        found = self.model(**inputs)
        found.logits = found.logits[..., :VOCABULARY]
        return found


def answers() -> list[tuple[int, ...]]:
    """Every answer of at most `BUDGET` tokens: one ends with `END` or at the budget."""
    found = []
    for length in range(1, BUDGET + 1):
        for tokens in product(range(VOCABULARY), repeat=length):
            if END not in tokens[:-1] and (tokens[-1] == END or length == BUDGET):
                found.append(tokens)
    return found


def logprobs(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> float:
    with torch.no_grad():
        scores = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
    return sum(float(scores[len(prompt) - 1 + t, token]) for t, token in enumerate(answer))


@pytest.mark.parametrize("at_once", [1, 10**6], ids=["one at a time", "padded to the longest"])
def test_its_mean_over_all_answers_is_the_exact_divergence(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "AT_ONCE", at_once)
    policy, base = Few(1), Few(2)
    everything = answers()
    own, other = (np.array([logprobs(model, PROMPT, answer) for answer in everything]) for model in (policy, base))
    assert np.exp(own).sum() == pytest.approx(1, abs=1e-5)
    exact = float(np.exp(own) @ (own - other))
    found = np.array(divergences(policy, base, [(PROMPT, answer) for answer in everything]))
    assert exact > 0.1
    assert float(np.exp(own) @ found) == pytest.approx(exact, rel=1e-4)
    assert (found > 0).all() and (own - other).min() < 0
    assert np.exp(own) @ (found - exact) ** 2 < np.exp(own) @ (own - other - exact) ** 2


def test_of_a_policy_it_is_that_of_its_samples(tmp_path: Path) -> None:
    base = tiny_policy()
    policy = adapted(base, tmp_path, std=0.05)
    problems = generate("arithmetic", "train", 3, seed=1)
    decoding = Decoding(100, 1.0, 1.0, 4, 300, seed=0)
    rows = own_answers(policy, base, problems, Prompt(), decoding)
    assert list(rows.columns) == list(divergence.COLUMNS)
    assert rows.groupby("problem_id")["sample"].agg(list).tolist() == [list(range(100))] * 3
    assert rows["token_count"].between(1, 4).all() and (rows["kl"] > 0).all()
    # Against the plain estimate, on answers of the same engine to one problem.
    engine, other = TransformersEngine.of(policy), load_model(base)
    asked = Request(problems[0].problem_id, engine.render(conversation(problems[0], Prompt())))
    [drawn] = engine.generate([asked], replace(decoding, seed=1))
    ratios = [
        logprobs(engine.model, done.prompt_ids, done.token_ids) - logprobs(other, done.prompt_ids, done.token_ids)
        for done in drawn
    ]
    found = rows.loc[rows["problem_id"] == problems[0].problem_id, "kl"]
    assert abs(np.mean(ratios) - found.mean()) < 4 * np.hypot(np.std(ratios), np.std(found)) / 10
    assert divergences(load_model(base), load_model(base), [((1, 2), (3,))]) == [0.0]


@pytest.mark.parametrize("other", [{"temperature": 0.0}, {"temperature": 1.3}, {"top_p": 0.9}])
def test_greedy_or_tempered_answers_are_refused(other: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="temperature 1"):
        own_answers(tiny_policy(), tiny_policy(), [], Prompt(), replace(Decoding(1, 1.0, 1.0, 4, 1, 0), **other))
