"""`g2d config check` refuses what the first jobs would refuse: contents of local problems and models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from g2d.cli import main
from tests.configs import MINIMAL
from tests.models import tiny_policy

ROWS = [{"problem": f"{n} + 1", "answer": n + 1, "level": n % 3} for n in range(9)]
CONFIG = MINIMAL | {
    "models": {"mine": {"source": "local", "path": "model"}},
    "pool": {"source": "local", "path": "pool.jsonl", "fields": {"level": "level"}},
    "training_set": {"n": 3},
    **{name: {"max_completion_length": 24} for name in ("warmup", "calibration", "harvest", "evaluation")},
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_policy().base, "model")
    write_pool(ROWS)


def write_pool(rows: list[dict[str, Any]]) -> None:
    Path("pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def checked(capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    Path("my.yaml").write_text(yaml.safe_dump(CONFIG | changes))
    status = main(["config", "check", "my.yaml"])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("my.yaml: ")]
    assert status == bool(lines)
    return lines


def test_whole_files_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys) == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": None}, "column 'answer': "),
        ({"answer": float("nan")}, ""),
        ({"answer": ""}, "column 'answer': the answer is empty"),
        ({"answer": True}, "column 'answer': "),
        ({"answer": [1, 2]}, "column 'answer': "),
        ({"problem": " "}, "column 'problem': it is empty"),
        ({"problem": None}, "column 'problem': it is empty"),
    ],
)
def test_a_row_without_question_or_answer_is_refused(
    capsys: pytest.CaptureFixture[str], row: dict[str, Any], message: str
) -> None:
    write_pool([*ROWS, ROWS[0] | {"problem": "new"} | row])
    [line] = checked(capsys)
    assert line.startswith(f"my.yaml: pool.jsonl, line 10: {message}")


def test_a_level_that_no_problem_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    [line] = checked(capsys, calibration=CONFIG["calibration"] | {"levels": [77]})
    assert "calibration.levels: level 77 has no calibrated problems: choose from 0-2" in line


def without_a_layer(model: Path) -> None:
    file = model / "model.safetensors"
    weights = {name: tensor for name, tensor in load_file(file).items() if "mlp" not in name}
    save_file(weights, file, {"format": "pt"})


def as_pickle(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


def with_template(text: str) -> Callable[[Path], None]:
    return lambda model: (model / "chat_template.jinja").write_text(text) and None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_a_layer, "no weights of the right shape for model.layers.0.mlp"),
        (as_pickle, "no *.safetensors in it"),
        (lambda model: (model / "chat_template.jinja").unlink(), "no chat template"),
        (with_template("hello"), "the chat template drops a part of the user message"),
        (with_template("{{ raise_exception('no') }}"), "chat template fails: no"),
        (with_template("{% if %}"), "chat template fails: "),
        (lambda model: (model / "tokenizer.json").write_text("{"), "its tokenizer cannot be read"),
        (lambda model: (model / "config.json").write_text("{"), ""),
    ],
)
def test_a_model_that_cannot_be_used_is_refused(
    capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], message: str
) -> None:
    damage(Path("model"))
    [line] = checked(capsys)
    assert line.startswith("my.yaml: models.mine: ")
    assert message in line
