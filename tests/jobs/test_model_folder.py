"""Folders of models whose headers and index show that weights are missing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from g2d.jobs.model_folder import mistake_in_weights

INDEX = {"weight_map": {"a": "first.safetensors", "b": "second.safetensors"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"a": torch.zeros(3)}, tmp_path / "first.safetensors")
    save_file({"b": torch.zeros(2, 2)}, tmp_path / "second.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    return tmp_path


def test_a_whole_model_is_accepted(folder: Path) -> None:
    assert mistake_in_weights(folder) is None
    save_file({"module.a": torch.zeros(1), "b": torch.zeros(1)}, folder / "model.safetensors")
    assert mistake_in_weights(folder) is None  # transformers prefers this file, and one name in it is no wrapper


def cut(folder: Path) -> None:
    file = folder / "second.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def pointer(folder: Path) -> None:
    (folder / "first.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")


def other_tensor(folder: Path) -> None:
    save_file({"c": torch.zeros(3)}, folder / "first.safetensors")


def broken_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")


def wrapped(folder: Path) -> None:
    save_file({"module.a": torch.zeros(1)}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut, "second.safetensors: 87 bytes instead of 88"),
        (pointer, "first.safetensors: no safetensors file, or cut short"),
        (
            lambda folder: (folder / "second.safetensors").unlink(),
            "no second.safetensors, which model.safetensors.index",
        ),
        (other_tensor, "first.safetensors: no tensor a, which model.safetensors.index.json lists"),
        (broken_index, "model.safetensors.index.json: no weight_map can be read in it"),
        (lambda folder: (folder / "model.safetensors.index.json").unlink(), "neither model.safetensors nor "),
        (wrapped, "every tensor's name begins with module., so "),
    ],
)
def test_missing_weights_are_named(folder: Path, change: Callable[[Path], None], message: str) -> None:
    change(folder)
    mistake = mistake_in_weights(folder)
    assert mistake is not None
    assert re.search(re.escape(message), mistake)
