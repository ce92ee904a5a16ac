"""Reward models: real ones of several architectures, with random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file

from g2d.checks.load import load
from g2d.checks.requirements import require_files
from g2d.jobs.files import read_json
from g2d.problems import Problem
from g2d.rewards.model import Scorer
from g2d.rewards.registry import AnyReward, judge, reward_params, reward_settings, words_of
from g2d.rewards.reward import Judgement, UnusableError, VerifiedCompletion
from g2d.settings import ConfigError, Section
from g2d.verifier import Verification
from tests.configs import MINIMAL
from tests.rewards.models import CONTEXT, TEMPLATE, reward_model

CONVERSATIONS = [
    ("Name a fruit.", "An apple"),
    ("Name a fruit.", "An apple" + ", please" * 20),
    ("Name a fruit.", "An apple" + ", please" * 3),
    ("Name a fruit.", "An apple, please"),
    ("Name a fruit.", "An apple" + ", please" * 11),
    ("Name a fruit.", "An apple" + ", please" * 3),
    ("Why?", ""),
]


def settings(folder: Path, **more: Any) -> Section:
    section: Section = TypeAdapter(AnyReward).validate_python({"reward": "model", "path": str(folder), **more})
    return section


def judged(folder: Path, texts: list[str], **more: Any) -> list[Judgement]:
    problem = Problem("p", "Name a fruit.", "", None, None, "a test")
    completions = [
        VerifiedCompletion(problem, "p", i, text, Verification("no_boxed", None)) for i, text in enumerate(texts)
    ]
    return judge(settings(folder, **more), completions, CONTEXT)


def by_hand(folder: Path, prompt: str, completion: str, limit: int | None = None) -> float:
    """Score of one conversation by transformers."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
    tokens = tokenizer.apply_chat_template(turns, return_dict=False)[:limit]
    with torch.no_grad():
        return float(model(torch.tensor([tokens])).logits[0, 0])


HEADS = {"head_dim": 8, "num_key_value_heads": 4}
CAPPED = HEADS | {"attn_logit_softcapping": 0.1}  # only eager attention has a cap


@pytest.mark.parametrize(
    ("kind", "padding", "shape"),
    [("Llama", True, {}), ("Llama", False, {}), ("Qwen3", True, HEADS), ("Bert", True, {}), ("Gemma2", True, CAPPED)],
)
def test_a_batch_has_the_scores_of_single_conversations(
    tmp_path: Path, kind: str, padding: bool, shape: dict[str, Any]
) -> None:
    folder = reward_model(tmp_path, kind, padding=padding, **shape)
    single = [by_hand(folder, *pair) for pair in CONVERSATIONS]
    assert max(single) - min(single) > 1e-3  # so that equal scores are no coincidence
    scores = Scorer(folder, batch_size=3)(CONVERSATIONS)
    assert [score.value for score in scores] == pytest.approx(single, abs=1e-5)
    assert not any(score.truncated for score in scores)


def test_scores_do_not_depend_on_the_day(tmp_path: Path) -> None:
    """Chat templates of reward models trained from Llama 3.2 print today's date."""
    folder = reward_model(tmp_path)
    (folder / "chat_template.jinja").write_text(f"{{{{ strftime_now('%d %b %Y') }}}} {TEMPLATE}")
    today = Scorer(folder, batch_size=1)(CONVERSATIONS)
    (folder / "chat_template.jinja").write_text(f"26 Jul 2024 {TEMPLATE}")
    assert today == Scorer(folder, batch_size=1)(CONVERSATIONS)


def test_a_pass_keeps_no_keys_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are most of the memory of a pass: 2.8 of 4.3 GiB for 16 conversations of 1,280 tokens and a 4B model."""
    monkeypatch.setattr("transformers.cache_utils.DynamicLayer.update", None)
    Scorer(reward_model(tmp_path), batch_size=4)(CONVERSATIONS)


def test_scores_are_cached(tmp_path: Path) -> None:
    scorer = Scorer(reward_model(tmp_path), batch_size=4)
    rows: list[int] = []
    scorer.model.register_forward_pre_hook(
        lambda model, arguments, keywords: rows.append(len(keywords["input_ids"])), with_kwargs=True
    )
    first = scorer(CONVERSATIONS)
    assert rows == [4, 2]  # one of the seven is there twice
    assert scorer([*CONVERSATIONS[::-1], ("Why?", "Because")])[:7] == first[::-1]
    assert rows == [4, 2, 1]


def test_long_conversations_are_truncated_and_counted(tmp_path: Path) -> None:
    folder = reward_model(tmp_path)
    long = "x" * 300  # bytes are tokens, and the model has 256 positions
    judgements = judged(folder, ["x", long])
    assert [judgement.details for judgement in judgements] == [{}, {"truncated": True}]
    assert judgements[1].reward == pytest.approx(by_hand(folder, "Name a fruit.", long, 256), abs=1e-5)
    for limit in (18, 17):  # the tokens of question and answer, and one less
        [judgement] = judged(folder, ["x"], max_length=limit)
        assert judgement.reward == pytest.approx(by_hand(folder, "Name a fruit.", "x", limit), abs=1e-5)
        assert judgement.details == ({} if limit == 18 else {"truncated": True})


def test_a_score_that_is_no_number_has_a_status_and_a_missing_head_is_refused(tmp_path: Path) -> None:
    file = reward_model(tmp_path) / "model.safetensors"
    weights = load_file(file)
    save_file(weights | {"score.weight": torch.full_like(weights["score.weight"], torch.nan)}, file, {"format": "pt"})
    judgements = judged(tmp_path, ["x", "y"])
    assert [(judgement.reward, judgement.status) for judgement in judgements] == [(None, "not_finite")] * 2
    del weights["score.weight"]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UnusableError, match=r"no weights for score\.weight: "):
        judged(tmp_path, ["x"], batch_size=2)  # another entry, which is not cached


@pytest.mark.parametrize("part", ["__init__", "_forward"])
def test_a_model_that_does_not_fit_on_the_gpu_is_named_with_its_keys(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Scorer, part, too_large)
    with pytest.raises(UnusableError, match=rf"reward model {tmp_path}: out of memory: lower its batch_size"):
        judged(reward_model(tmp_path), ["x"])


def test_params_give_back_the_settings(tmp_path: Path) -> None:
    section = settings(reward_model(tmp_path))
    assert reward_settings(reward_params(section)) == section
    assert words_of(section) == f"scores of the reward model {tmp_path}"


def test_a_file_that_the_model_does_not_read_changes_nothing(tmp_path: Path) -> None:
    section = settings(reward_model(tmp_path))
    params = reward_params(section)
    (tmp_path / "README.md").write_text("says nothing to the model")
    assert reward_params(section) == params


def test_other_weights_are_another_reward(tmp_path: Path) -> None:
    section = settings(reward_model(tmp_path))
    params = reward_params(section)
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert reward_params(section) != params
    with pytest.raises(ValueError, match=r"its files changed after this job was planned: sha256 "):
        reward_settings(params)


def test_another_chat_template_is_another_reward(tmp_path: Path) -> None:
    section = settings(reward_model(tmp_path))
    params = reward_params(section)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[1]['content'] }}")
    assert reward_params(section) != params


def test_params_of_a_model_on_the_hub_have_no_digest() -> None:
    hub = TypeAdapter(AnyReward).validate_python({"reward": "model", "id": "a/b", "revision": "0" * 40})
    assert "content" not in reward_params(hub)  # the revision identifies the content


def edit(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(read_json(file) | changes))

    return change


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


@pytest.mark.parametrize(
    ("break_it", "more", "message"),
    [
        (pickled, {}, "no .*safetensors in it, and pickled weights are not loaded: convert it"),
        (without_template, {}, "its tokenizer has no chat template: add the one it was trained with"),
        (edit(id2label={"0": "bad", "1": "good"}), {}, "2 labels instead of 1, so there is no one score"),
        (edit(architectures=["LlamaForCausalLM"]), {}, "made for LlamaForCausalLM, not for sequence classification"),
        (edit(auto_map={"AutoModelForSequenceClassification": "own.Own"}), {}, "no such code is run: choose"),
        (lambda folder: (folder / "config.json").write_text("{"), {}, r"its config.json cannot be read \(Expecting"),
        (lambda folder: (folder / "config.json").write_text("[1]"), {}, "its config.json cannot be read"),
        (lambda folder: None, {"max_length": 257}, "reads 256 tokens at most, not 257: lower max_length"),
        (lambda folder: None, {"path": "nowhere"}, "nowhere does not exist in .*, where relative paths start"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_before_anything_runs(
    tmp_path: Path, break_it: Callable[[Path], None], more: dict[str, Any], message: str
) -> None:
    break_it(reward_model(tmp_path))
    entry = {"reward": "model", "path": str(tmp_path), **more}
    with pytest.raises(ConfigError, match=f"rewards.polite: .*{message}") as caught:
        require_files(load(MINIMAL | {"rewards": {"polite": entry}}))
    assert "\n" not in str(caught.value)
    assert "delete" not in str(caught.value)  # advice for files that the workflow makes


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "rewards.polite.path: give a folder here, or id and revision instead"),
        ({"path": "a", "id": "b"}, "rewards.polite.path: give a folder here, or id and revision instead"),
        ({"id": "a/b"}, "rewards.polite.revision: missing: add the commit hash of a/b"),
        ({"path": "a", "revision": "0" * 40}, "rewards.polite.revision: a folder has none: remove this key"),
        ({"id": "a/b", "revision": "main"}, "rewards.polite.revision: "),
    ],
)
def test_a_model_has_one_source(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(MINIMAL | {"rewards": {"polite": {"reward": "model", **source}}})
