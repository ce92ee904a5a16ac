"""The demonstration model is an ordinary Hugging Face model."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

from transformers import AutoModelForCausalLM, AutoTokenizer

from g2d.jobs.files import sha256
from g2d.policies.scratch import build_tokenizer, train_scratch
from g2d.policies.settings import ScratchModel
from g2d.problems.corpus import corpus_document
from g2d.problems.synthetic import generate
from tests.models import tiny_policy

TINY = ScratchModel(source="scratch", steps=3, batch_size=4, hidden_size=16, layers=1)


def test_the_reloaded_tokenizer_gives_the_same_tokens() -> None:
    """transformers replaces the tokenizer class of some model types and ruins a custom one without an error."""
    texts = [text for document in (corpus_document(Random(i)) for i in range(200)) for text in document]
    reloaded, built = AutoTokenizer.from_pretrained(tiny_policy().base), build_tokenizer()
    assert reloaded.chat_template == built.chat_template
    for text in texts:
        ids = built(text)["input_ids"]
        assert reloaded(text)["input_ids"] == ids
        assert reloaded.decode(ids) == text


def test_every_problem_and_solution_is_in_the_vocabulary() -> None:
    tokenizer = build_tokenizer()
    problems = [
        p.prompt
        for family, n in (("arithmetic", 500), ("word_problems", 300))
        for p in generate(family, "train", n, seed=1)
    ]
    solutions = [corpus_document(Random(i))[1] for i in range(500)]
    for text in [*problems, *solutions]:
        assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"], text


def test_training_is_reproducible_and_depends_on_the_seed(tmp_path: Path) -> None:
    digests = []
    for name, settings in (("a", TINY), ("b", TINY), ("c", TINY.model_copy(update={"seed": 1}))):
        train_scratch(settings, tmp_path / name)
        digests.append(sha256(tmp_path / name / "model.safetensors"))
    assert digests[0] == digests[1] != digests[2]


def test_the_saved_folder_is_safetensors_and_nothing_to_unpickle(tmp_path: Path) -> None:
    train_scratch(TINY, tmp_path)
    names = {file.name for file in tmp_path.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert len(list(islice(model.parameters(), 3))) == 3
