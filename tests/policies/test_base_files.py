"""The record of a policy covers its chat template, tokenizer and settings as well as its weights."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from g2d.policies.model_keys import BASE_FILES, LocalModel
from g2d.policies.pretrained import placed, resolve_base
from g2d.policies.record import (
    PolicyRecord,
    as_json,
    base_files,
    load_base,
    load_tokenizer,
    read_own_policy,
    read_policy,
    require_own_weights,
    write_policy,
)
from tests.models import tiny_policy


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(tiny_policy().base, tmp_path / "model"))
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<|end|>"}')
    return folder


def record(folder: Path) -> PolicyRecord:
    return resolve_base("mine", LocalModel(source="local", path=str(folder)))


SOURCES = ("embedded", "local", "hub")


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return apply


EDITS: dict[str, Callable[[Path], object]] = {
    "chat_template.jinja": lambda folder: (folder / "chat_template.jinja").unlink(),
    "additional_chat_templates/rag.jinja": lambda folder: (
        (folder / "additional_chat_templates").mkdir(),
        (folder / "additional_chat_templates/rag.jinja").write_text("{{ messages }}"),
    ),
    "tokenizer.json": edit("tokenizer.json", "WordLevel", "WordLevel "),
    "tokenizer_config.json": lambda folder: (folder / "tokenizer_config.json").write_text(
        json.dumps(json.loads((folder / "tokenizer_config.json").read_text()) | {"padding_side": "left"})
    ),
    "special_tokens_map.json": edit("special_tokens_map.json", "<|end|>", "<|other|>"),
    "added_tokens.json": lambda folder: (folder / "added_tokens.json").write_text("{}"),
    "generation_config.json": edit("generation_config.json", "{", '{"top_k": 1, '),
    "config.json": edit("config.json", '"rms_norm_eps"', '"rms_norm_epsilon"'),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_changes_the_record(model: Path, name: str) -> None:
    """So a training does not resume from a checkpoint that was made with another tokenizer."""
    before = record(model)
    EDITS[name](model)
    assert base_files(model) != before.base_files


def test_m0_has_a_folder_with_copies_of_its_files_and_links_to_its_weights(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EDITS["additional_chat_templates/rag.jinja"](model)
    (model / "pytorch_model.bin").write_bytes(b"pickle")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    base = placed(record(model), Path("results/mine/base/model"))
    folder = Path(base.base)
    assert base_files(folder) == base.base_files == base_files(model)
    assert (folder / "model.safetensors").resolve() == model / "model.safetensors"
    assert [path.name for path in folder.iterdir() if path.is_symlink()] == ["model.safetensors"]
    assert not (folder / "pytorch_model.bin").exists()
    load_base(base)
    load_tokenizer(base)


def test_the_model_of_a_project_that_was_moved_is_not_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = placed(record(Path("model")), Path("results/mine/base/model"))
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    monkeypatch.chdir(moved)
    load_base(base)


def test_time_stamps_and_files_that_no_model_reads_change_nothing(model: Path) -> None:
    before = record(model)
    for file in model.iterdir():
        file.touch()
    (model / "README.md").write_text("notes")
    (model / "trainer_state.json").write_text("{}")
    assert record(model) == before
    load_tokenizer(before)


def test_all_files_that_transformers_reads_are_compared() -> None:
    import transformers.tokenization_utils_base as tokenization
    from transformers import utils

    read = {
        tokenization.FULL_TOKENIZER_FILE,
        tokenization.TOKENIZER_CONFIG_FILE,
        tokenization.SPECIAL_TOKENS_MAP_FILE,
        tokenization.ADDED_TOKENS_FILE,
        utils.CONFIG_NAME,
        utils.GENERATION_CONFIG_NAME,
        utils.SAFE_WEIGHTS_INDEX_NAME,
        utils.CHAT_TEMPLATE_FILE,
        f"{utils.CHAT_TEMPLATE_DIR}/x.jinja",
    }
    read |= {"vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model"}  # tokenizers without a .json
    for name in read:
        assert any(map(Path(name).match, BASE_FILES)), name


def test_a_record_of_a_newer_version_is_not_called_damaged(model: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(json.dumps(as_json(record(model)) | {"quantised": True}))
    with pytest.raises(ValueError, match=r"policy\.json: has quantised, which g2d .* a newer version made it"):
        read_policy(tmp_path / "policy.json")


def test_an_adapter_of_another_policy_is_refused(model: Path, tmp_path: Path) -> None:
    (file := tmp_path / "adapter_model.safetensors").write_bytes(b"a")
    policy = replace(record(model), adapter=str(tmp_path), weights_sha256=hashlib.sha256(b"a").hexdigest())
    require_own_weights(policy)
    file.write_bytes(b"b")
    with pytest.raises(ValueError, match=r"not the weights that policy\.json names"):
        require_own_weights(policy)


def test_only_the_embedded_model_is_one() -> None:
    kinds = {source: PolicyRecord("m", "m", "base", "m", settings={"source": source}).is_embedded for source in SOURCES}
    assert kinds == {"embedded": True, "local": False, "hub": False}


def test_the_folder_of_another_policy_is_refused(model: Path, tmp_path: Path) -> None:
    """Its record names the original weights, so these would answer instead of the folder's."""
    original = tmp_path / "results/mine/base/policy.json"
    copied = tmp_path / "results/other/base/policy.json"
    write_policy(original, record(model))
    shutil.copytree(tmp_path / "results/mine", tmp_path / "results/other")
    assert read_own_policy(original).policy_id == "mine/base"
    with pytest.raises(ValueError, match=r"other/base/policy\.json: the record of mine/base, copied here"):
        read_own_policy(copied)
