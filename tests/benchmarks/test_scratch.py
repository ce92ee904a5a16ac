"""The demonstration model is an ordinary Hugging Face model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.corpus import corpus_document
from benchmarks.scratch import Muon, Recipe, backward, build_tokenizer, draw_documents, train_scratch
from g2d.jobs.files import sha256
from g2d.problems.synthetic import generate
from tests.models import tiny_policy

TINY = Recipe(steps=3, batch_size=4, hidden_size=16, layers=1)


def test_the_reloaded_tokenizer_gives_the_same_tokens() -> None:
    """transformers replaces the tokenizer class of some model types and ruins a custom one without an error."""
    reloaded = AutoTokenizer.from_pretrained(tiny_policy().base)
    built = build_tokenizer()
    assert reloaded.chat_template == built.chat_template
    for i in range(200):
        for text in corpus_document(Random(i)):
            ids = built(text)["input_ids"]
            assert reloaded(text)["input_ids"] == ids
            assert reloaded.decode(ids) == text


def test_every_problem_and_solution_is_in_the_vocabulary() -> None:
    tokenizer = build_tokenizer()
    for problem in generate("arithmetic", "train", 500, seed=1) + generate("word_problems", "train", 300, seed=1):
        assert tokenizer.unk_token_id not in tokenizer(problem.prompt)["input_ids"], problem.prompt
    for i in range(500):
        solution = corpus_document(Random(i))[1]
        assert tokenizer.unk_token_id not in tokenizer(solution)["input_ids"], solution


def test_training_is_reproducible_and_depends_on_the_seed(tmp_path: Path) -> None:
    digests = []
    for name, settings in (("a", TINY), ("b", TINY), ("c", replace(TINY, seed=1))):
        train_scratch(settings, tmp_path / name)
        digests.append(sha256(tmp_path / name / "model.safetensors"))
    assert digests[0] == digests[1] != digests[2]
    files = {"config.json", "generation_config.json", "model.safetensors"}
    files |= {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert {file.name for file in (tmp_path / "a").iterdir()} == files


def test_documents_in_groups_of_similar_length_have_the_gradients_of_all_at_once() -> None:
    """Up to rounding: a group counts as much as it has tokens to learn."""
    tokenizer = build_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(tiny_policy().base, dtype=torch.float64)
    documents = draw_documents(tokenizer, Random(0), 12)

    def loss_and_gradients(group: int | None) -> tuple[float, torch.Tensor]:
        model.zero_grad()
        loss = backward(model, documents, tokenizer.pad_token_id, group)
        return loss, torch.cat([p.grad.flatten() for p in model.parameters()])

    loss, gradients = loss_and_gradients(None)
    loss_in_groups, gradients_in_groups = loss_and_gradients(5)
    assert loss == pytest.approx(loss_in_groups, rel=1e-9)
    torch.testing.assert_close(gradients, gradients_in_groups, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shape", [(24, 24), (48, 16), (16, 48)])
def test_muon_in_float32_is_pytorchs_up_to_rounding(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    start = torch.randn(2, *shape)
    gradients = torch.randn(3, 2, *shape)
    settings = {"lr": 0.02, "weight_decay": 0.05, "momentum": 0.95}

    def reached(make: Any) -> torch.Tensor:
        first = torch.nn.Parameter(start[0].clone())
        second = torch.nn.Parameter(start[1].clone())
        optimizer = make([first, second], **settings)
        for step in gradients:
            first.grad = step[0].clone()
            second.grad = step[1].clone()
            optimizer.step()
        return torch.stack([first.detach(), second.detach()])

    ours = reached(Muon)
    theirs = reached(partial(torch.optim.Muon, adjust_lr_fn="original"))
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.02 * moved  # bfloat16 has eight bits


@pytest.mark.parametrize("settings", [{"muon": "float32"}, {"length_group": 2}])
def test_how_it_is_computed_changes_no_more_than_rounding(tmp_path: Path, settings: dict[str, Any]) -> None:
    losses = []
    for values in ({}, settings):
        train_scratch(replace(TINY, **values), tmp_path)
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
        tokenizer = build_tokenizer()
        losses.append(backward(model, draw_documents(tokenizer, Random(0), 8), tokenizer.pad_token_id, None))
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
