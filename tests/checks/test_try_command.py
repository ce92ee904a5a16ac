"""`g2d try`: answers to problems of the configuration, with the settings of the grid."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from g2d.checks.load import load
from g2d.checks.try_command import Trial, drawn, summary
from g2d.cli import main
from g2d.problems import Problem
from g2d.rollouts.engine import Decoding
from tests.configs import MINIMAL
from tests.frames import rollout
from tests.models import tiny_policy

DEMO = {
    "models": {"demo": {"source": "embedded"}},
    "pool": {"source": "synthetic", "family": "arithmetic", "split": "train", "n": 100},
    "training_set": {"n": 20},
    "benchmarks": {"stories": {"source": "synthetic", "family": "word_problems", "split": "test", "n": 6}},
    "calibration": {"levels": [1, 2], "max_completion_length": 24},
    "warmup": {"steps": [0], "max_completion_length": 24},
    "harvest": {"max_completion_length": 24},
    "evaluation": {"max_completion_length": 3},
    "rewards": {"short": {"file": "short.py"}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(yaml.safe_dump(DEMO))
    Path("short.py").write_text("def reward(completions):\n    return [-len(text) for text in completions]\n")
    return tmp_path


@pytest.fixture
def of_pool(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Output for five problems of the pool with a reward."""
    assert main(["try", "my.yaml", "--n", "5", "--reward", "short"]) == 0
    return capsys.readouterr().out


def test_the_pool_is_answered_with_settings_of_the_harvest(of_pool: str) -> None:
    assert "5 problems as in harvest: temperature 1.3, at most 24 tokens" in of_pool


def test_each_problem_is_shown_with_its_number_and_prompt(of_pool: str) -> None:
    assert of_pool.count("\n<|im_start|>user") == 5
    for number in range(1, 6):
        assert f"--- {number}/5 arithmetic-train-" in of_pool


def test_each_answer_is_shown_with_its_reward(of_pool: str) -> None:
    assert of_pool.count("--- reward: -") == 5


def test_the_exception_of_a_reward_or_verifier_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("short.py").write_text("def reward(completions):\n    return completions['none']\n")
    Path("judge.py").write_text("def judge(problem, completion):\n    return problem.answer in completion\n")
    Path("my.yaml").write_text(yaml.safe_dump(DEMO | {"verifier": {"source": "python", "file": "judge.py"}}))
    assert main(["try", "my.yaml", "--n", "2", "--reward", "short"]) == 1  # no answer is judged
    output = capsys.readouterr().out
    exception = "TypeError: list indices must be integers or slices, not str"
    assert output.count(f"--- reward: none (error: {exception})") == 2
    assert f"the reward gave no number to 2 of 2: error: {exception}" in output
    assert "the verifier failed on 2 of 2: error: AttributeError: 'dict' object has no attribute 'answer'" in output


def test_no_file_is_written(folder: Path, of_pool: str) -> None:
    assert {*folder.iterdir()} == {folder / "my.yaml", folder / "short.py"}


def test_a_benchmark_is_answered_with_settings_of_the_evaluation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", "my.yaml", "--problems", "stories"]) == 0
    output = capsys.readouterr().out
    assert "6 problems as in evaluation: greedy, at most 3 tokens" in output
    assert "  cut off                 6 of 6" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "other"], "--model other: not in the configuration, which has demo"),
        (["--problems", "math"], "--problems math: not in the configuration, which has pool, stories"),
        (["--reward", "long"], "--reward long: not in the configuration, which has short"),
    ],
)
def test_a_name_that_is_not_there_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["try", "my.yaml", *options]) == 2
    assert capsys.readouterr().err == f"g2d try: {message}\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}"),
            "the chat template fails: ",
        ),
        (lambda folder: poison(folder / "model.safetensors"), "mine: weights are infinite or NaN, "),
    ],
)
def test_a_model_that_cannot_answer_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], Any], message: str
) -> None:
    shutil.copytree(tiny_policy().base, "model")
    damage(Path("model"))
    Path("my.yaml").write_text(yaml.safe_dump(DEMO | {"models": {"mine": {"source": "local", "path": "model"}}}))
    assert main(["try", "my.yaml", "--n", "2"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]  # before it are bars of progress
    assert last.startswith("g2d try: ")
    assert message in last


def poison(weights: Path) -> None:
    """Every weight becomes NaN."""
    save_file({name: tensor * math.nan for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})


def test_the_choice_depends_only_on_the_seed() -> None:
    pool = [Problem(f"p{n}", "?", "1", n % 3, None, "a test") for n in range(30)]
    pinned = load(MINIMAL | {"calibration": {"levels": [2]}, "training_set": {"n": 400}}).calibration
    assert {problem.level for problem in drawn(pool, pinned, "pool", 5, 0)} == {2}
    assert len(drawn(pool, pinned, "pool", 50, 0)) == 10
    assert drawn(pool, pinned, "math", 5, 0) == drawn(pool, pinned, "math", 5, 0) != drawn(pool, pinned, "math", 5, 1)


def test_the_summary_counts_verdicts_and_answers_that_are_cut_off() -> None:
    right = rollout("p", 0, "correct")
    wrong = rollout("p", 0, "incorrect")
    cut = rollout("p", 0, "truncated", finish_reason="length", token_count=100)
    trial = Trial("harvest", Decoding(1, 1.3, 1.0, 100, 64, 0), [right, right, wrong, cut], [1, 1, 0, 0])
    assert summary(trial).splitlines() == [
        "4 problems as in harvest: temperature 1.3, at most 100 tokens",
        "  correct                 2 of 4",
        "  incorrect               1 of 4",
        "  truncated               1 of 4",
        "  cut off                 1 of 4",
        "  tokens                 32.5 on average, 100 at most",
    ]
