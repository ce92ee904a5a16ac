"""The list of private names of TRL and transformers is complete, and a changed one is an error."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import Trainer
from trl import DPOTrainer, GRPOTrainer, SFTTrainer

from g2d.regimes.common.trl_private import OVERRIDDEN, READ, require_private_names

REGIMES = Path(__file__).parents[2] / "src/g2d/regimes"
TRAINERS = (Trainer, DPOTrainer, SFTTrainer, GRPOTrainer)


def private_names(of_class: ast.ClassDef) -> set[str]:
    """Names with one underscore that a class defines or uses."""
    names = set()
    for node in ast.walk(of_class):
        name = ""
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.FunctionDef):
            name = node.name
        if name.startswith("_") and not name.startswith("__"):
            names.add(name)
    return names


def trainer_classes() -> Iterator[ast.ClassDef]:
    """Classes of the package that derive from a trainer."""
    for file in REGIMES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and any("Trainer" in ast.unparse(base) for base in node.bases):
                yield node


@pytest.mark.parametrize("of_class", [*trainer_classes()], ids=lambda node: node.name)
def test_every_private_name_of_a_trainer_is_listed(of_class: ast.ClassDef) -> None:
    listed = set()
    for methods in OVERRIDDEN.values():
        listed |= set(methods)
    for attributes in READ.values():
        listed |= set(attributes)
    sources = [inspect.getsource(trainer) for trainer in TRAINERS]
    for name in private_names(of_class):
        is_theirs = any(f"self.{name}" in source or f"def {name}(" in source for source in sources)
        assert not is_theirs or name in listed, name


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_installed_versions_are_not_refused(trainer: type) -> None:
    require_private_names(trainer)


def test_a_method_with_other_parameters_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRPOTrainer, "_calculate_rewards", lambda self, inputs, texts: None)
    with pytest.raises(ImportError, match="_calculate_rewards has the parameters inputs, texts"):
        require_private_names(GRPOTrainer)


def test_a_name_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(DPOTrainer, "_precompute_ref_logps")
    with pytest.raises(ImportError, match="DPOTrainer has changed: _precompute_ref_logps is missing"):
        require_private_names(DPOTrainer)


def test_a_change_below_trl_names_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Trainer, "_save_checkpoint")
    monkeypatch.setattr(DPOTrainer, "_save_checkpoint", lambda self, model, trial: None)
    with pytest.raises(ImportError, match=r"transformers .*: Trainer has changed: _save_checkpoint is missing"):
        require_private_names(DPOTrainer)
