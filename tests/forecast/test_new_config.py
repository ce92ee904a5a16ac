"""`g2d config new`: the file that it writes is valid, commented, and never replaces another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from g2d.cli import main
from g2d.experiment.config import load, read
from g2d.experiment.config_file import read_file
from g2d.forecast import command, new_config
from tests.experiment.test_config import CONFIG, MINIMAL
from tests.models import tiny_policy

QWEN = "Qwen/Qwen2.5-0.5B-Instruct@7ae557604adf67be50417f59c2c2f167def9a775"
ROWS = {
    "plain.jsonl": {"question": "1 + 1?", "answer": "2"},
    "boxed.jsonl": {"problem": "1 + 1?", "solution": r"It is \boxed{2}.", "difficulty": "Level 1"},
    "gsm8k.jsonl": {"question": "1 + 1?", "answer": "It is 2.\n#### 2"},
    "odd.jsonl": {"text": "1 + 1?", "answer": "2"},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, row in ROWS.items():
        Path(name).write_text(f"{json.dumps(row)}\n" * 3)


@pytest.mark.parametrize(("name", "file"), [("gsm8k", "small"), ("math", "paper")])
def test_data_sets_equal_the_shipped_configurations(name: str, file: str) -> None:
    shipped = read_file(CONFIG / f"{file}.yaml")
    assert new_config.DATA_SETS[name]["pool"] == shipped["pool"]
    assert new_config.DATA_SETS[name]["benchmarks"].items() <= shipped["benchmarks"].items()
    assert new("--model", QWEN, "--problems", name, "--memory", "0") == 0
    assert shipped["prompt"]["system"] == read_file("my.yaml")["prompt"]["system"]


def new(*options: str) -> int:
    return main(["config", "new", "my.yaml", *options])


@pytest.mark.parametrize(
    "options",
    [
        ["--model", "embedded"],
        ["--model", QWEN, "--problems", "gsm8k", "--memory", "0"],
        ["--model", QWEN, "--problems", "math", "--memory", "0", "--max-completion-length", "2048"],
        ["--model", QWEN, "--problems", "arithmetic", "--memory", "0"],
        ["--model", QWEN, "--problems", "boxed.jsonl", "--benchmark", "plain.jsonl", "--memory", "0"],
    ],
)
def test_the_file_is_valid(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert new(*options) == 0
    assert capsys.readouterr().out.startswith("my.yaml: valid\n")
    assert main(["config", "check", "my.yaml"]) == 0


def test_without_a_card_the_grid_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_config, "_fits", lambda *arguments: [])
    shutil.copytree(tiny_policy().base, "model")
    assert new("--model", "model", "--problems", "arithmetic", "--memory", "0") == 0
    small = read("my.yaml")
    assert (small.seeds, small.training_set.n, small.warmup.max_completion_length) == ([0], 200, 64)
    assert "model" not in small.title
    assert new("--model", QWEN, "--problems", "arithmetic", "--memory", "80", "--overwrite") == 0
    large = read("my.yaml")
    assert (large.seeds, large.training_set.n, large.warmup.max_completion_length) == ([0, 1, 2], 1500, 512)
    length = ["--max-completion-length", "100", "--memory", "0", "--overwrite"]
    assert new("--model", "model", "--problems", "arithmetic", *length) == 0
    assert read("my.yaml").harvest.max_completion_length == 100


def test_the_file_says_whether_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(tiny_policy().base, "tiny")
    assert new("--model", "tiny", "--problems", "gsm8k", "--max-completion-length", "100", "--memory", "24") == 0
    fits = "Memory: tiny fits on 24 GiB by the estimate of `g2d plan`"
    assert fits in capsys.readouterr().out
    assert f"# {fits}" in Path("my.yaml").read_text()
    assert read("my.yaml").engine.name == "vllm"


def test_a_job_that_does_not_fit_has_a_proposed_change(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"job": "grpo", "verdict": "does not fit", "total_bytes": 3 * 2**30, "change": "use a larger card"}
    monkeypatch.setattr(command, "model_forecast", lambda *arguments: {"jobs": [job]})
    model = {"mine": {"source": "local", "path": "mine"}}
    lines = list(new_config._fits(load(MINIMAL | {"models": model}), 2))
    assert lines == ["Memory: grpo of mine: does not fit, 3.0 of 2 GiB; use a larger card (`g2d plan`)."]


@pytest.mark.parametrize(
    ("name", "fields", "answer_format"),
    [
        ("plain.jsonl", {"prompt": "question", "answer": "answer"}, "plain"),
        ("boxed.jsonl", {"prompt": "problem", "answer": "solution", "level": "difficulty"}, "boxed"),
        ("gsm8k.jsonl", {"prompt": "question", "answer": "answer"}, "gsm8k"),
    ],
)
def test_columns_and_format_are_read_from_the_first_row(name: str, fields: dict[str, str], answer_format: str) -> None:
    assert new("--model", QWEN, "--problems", name, "--benchmark", name, "--memory", "0") == 0
    values = read_file("my.yaml")
    assert (values["pool"]["fields"], values["pool"]["answer_format"]) == (fields, answer_format)
    assert values["benchmarks"] == {name.removesuffix(".jsonl"): values["pool"]}
    assert values["training_set"]["n"] == 3


def test_no_file_is_replaced_without_overwrite(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.yaml").write_text("mine")
    assert new("--model", "embedded") == 2
    assert "my.yaml exists: name another file, or add --overwrite to replace it" in capsys.readouterr().err
    assert Path("my.yaml").read_text() == "mine"
    assert new("--model", "embedded", "--overwrite") == 0
    assert Path("my.yaml").read_text() != "mine"


def test_missing_answers_are_read_from_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([QWEN, "", "plain.jsonl", "gsm8k", "0"])  # the question is repeated after an empty answer
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(
        "builtins.input", lambda question: questions.append(question.partition(" ")[0]) or next(answers)
    )
    monkeypatch.setattr("g2d.forecast.command.memory_here", lambda: None)
    assert new() == 0
    assert questions == ["Model", "Problems", "Problems", "Benchmark", "Memory"]
    config = read("my.yaml")
    assert [*config.models] == ["qwen2.5-0.5b-instruct"]
    assert config.pool.source == "local"
    assert [*config.benchmarks] == ["gsm8k"]
    assert config.engine.name == "transformers"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--model is missing: a folder"),
        (["--model", QWEN], "--problems is missing: gsm8k, math"),
        (["--model", QWEN, "--problems", "plain.jsonl"], "--benchmark is missing: a JSONL file"),
        (["--model", QWEN, "--problems", "none.jsonl", "--benchmark", "gsm8k"], "--problems none.jsonl: no such file"),
        (["--model", QWEN, "--problems", "odd.jsonl", "--benchmark", "gsm8k"], "--problems odd.jsonl: no column"),
        (["--model", "nowhere", "--problems", "gsm8k"], "--model nowhere: "),
        (["--model", "embedded", "--problems", "gsm8k"], "--problems gsm8k: "),
    ],
)
def test_nothing_is_written_for_an_invalid_answer(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert new(*options) == 2
    assert message in capsys.readouterr().err
    assert not Path("my.yaml").exists()


def test_without_the_hub_the_message_asks_for_a_commit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    assert new("--model", "owner/name", "--problems", "gsm8k") == 2
    assert capsys.readouterr().err.endswith("give owner/name@COMMIT\n")
