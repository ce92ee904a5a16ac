"""The shipped model is part of the package and has the digests of its recipe."""

from __future__ import annotations

import runpy
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from setuptools import build_meta

from benchmarks.scratch import Recipe
from g2d.jobs.files import read_json, sha256
from g2d.policies import embedded

REPOSITORY = Path(__file__).parents[2]


def shapes(folder: Path) -> dict[str, Any]:
    with safe_open(folder / "model.safetensors", "pt") as weights:
        found = {}
        for name in weights.keys():  # noqa: SIM118
            part = weights.get_slice(name)
            found[name] = (part.get_dtype(), part.get_shape())
        return found


def test_the_shipped_files_have_the_digests_of_the_recipe() -> None:
    for name, digest in embedded.digests().items():
        assert sha256(embedded.FOLDER / name) == digest, name


def test_a_changed_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = Path(shutil.copytree(embedded.FOLDER, tmp_path / "shipped"))
    (shipped / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    monkeypatch.setattr(embedded, "FOLDER", shipped)
    with pytest.raises(ValueError, match=r"model.safetensors: missing or not the file that g2d ships"):
        embedded.copy_embedded(tmp_path)


def test_the_script_makes_such_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not these bits: the same shapes, tokenizer and configuration, from the same recipe but for its length."""
    short = {"steps": 2, "batch_size": 4}
    script = runpy.run_path(str(REPOSITORY / "benchmarks/embedded_model.py"))
    script["SETTINGS"].update(short)
    script["PROBLEMS"].update(n=20)
    monkeypatch.setattr("sys.argv", ["embedded_model.py", "--work", str(tmp_path / "work"), "--out", str(tmp_path)])
    script["main"]()
    made = read_json(tmp_path / embedded.RECIPE)
    shipped = read_json(embedded.FOLDER / embedded.RECIPE)
    assert shapes(tmp_path) == shapes(embedded.FOLDER)
    for name in embedded.digests().keys() - {"model.safetensors"}:
        assert sha256(tmp_path / name) == sha256(embedded.FOLDER / name), name
    assert made.keys() == shipped.keys()
    assert made["recipe"] == shipped["recipe"] | short | {"seed": made["recipe"]["seed"]}
    assert made["sha256"] == {name: sha256(tmp_path / name) for name in embedded.digests()}


def test_the_recipe_says_which_candidate_was_kept() -> None:
    recipe = read_json(embedded.FOLDER / embedded.RECIPE)
    Recipe(**recipe["recipe"])
    candidates = recipe["candidates"]
    assert len(candidates) == 5
    assert candidates[f"seed {recipe['recipe']['seed']}"] == sorted(candidates.values())[2]
    assert recipe["problems"]["split"] == "development"


def test_a_wheel_has_every_file_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "src", tmp_path / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(REPOSITORY / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dist").mkdir()
    wheel = build_meta.build_wheel(str(tmp_path / "dist"))
    files = [file.relative_to(tmp_path / "src") for file in (tmp_path / "src").rglob("*") if file.is_file()]
    ours = {file.as_posix() for file in files if "g2d.egg-info" not in file.parts and file.parts[0] != "build"}
    assert len(ours) > 150
    assert ours <= set(zipfile.ZipFile(tmp_path / "dist" / wheel).namelist())
