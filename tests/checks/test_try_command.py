"""`g2d try`: answers to problems of the configuration, with the settings of the grid, and hints about them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from g2d.checks.load import load
from g2d.checks.try_command import Trial, drawn, hints, summary, tried
from g2d.cli import main
from g2d.grid.grid import Grid
from g2d.problems import Problem
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import Rollout
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
    assert "demo: 5 problems of pool, temperature 1.3, at most 24 tokens (harvest)" in of_pool


def test_each_problem_is_shown_with_its_number_and_prompt(of_pool: str) -> None:
    assert of_pool.count("  prompt | <|im_start|>user") == 5
    assert all(f"{number}/5 arithmetic-train-" in of_pool for number in range(1, 6))


def test_only_problems_of_the_pinned_levels_are_shown(of_pool: str) -> None:
    assert of_pool.count("(level 1)") + of_pool.count("(level 2)") == 5


def test_each_answer_is_shown_with_its_reward(of_pool: str) -> None:
    assert of_pool.count("  reward | -") == 5


def test_no_file_is_written(folder: Path, of_pool: str) -> None:
    assert sorted(file.name for file in folder.iterdir()) == ["my.yaml", "short.py"]


def test_answers_are_printed_while_others_are_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They equal the answers to all problems in one call."""
    config, shown = load(DEMO), []
    whole = tried(config, "demo", "pool", 5, reward="short")
    monkeypatch.setattr("g2d.checks.try_command.AT_ONCE", 2)
    parts = tried(
        config, "demo", "pool", 5, 0, "short", lambda trial, first, n: shown.append((first, len(trial.rollouts), n))
    )
    assert shown == [(0, 2, 5), (2, 4, 5), (4, 5, 5)]
    assert parts.rollouts == whole.rollouts
    assert parts.rewards == whole.rewards


def test_a_benchmark_is_answered_with_settings_of_the_evaluation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", "my.yaml", "--problems", "stories"]) == 0
    output = capsys.readouterr().out
    assert "demo: 6 problems of stories, greedy, at most 3 tokens (evaluation)" in output
    assert "  cut off             6 of 6" in output
    assert "-> 6 of 6 are cut off at evaluation.max_completion_length=3: raise it" in output


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
        (lambda folder: (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}"), "mine: "),
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
    assert last.startswith(f"g2d try: {message}")


def poison(weights: Path) -> None:
    """Every weight becomes NaN."""
    save_file({name: tensor * math.nan for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})


def test_the_choice_depends_only_on_the_seed() -> None:
    pool = [Problem(f"p{n}", "?", "1", n % 3, None, "a test") for n in range(30)]
    pinned = load(MINIMAL | {"calibration": {"levels": [2]}, "training_set": {"n": 400}}).calibration
    assert {problem.level for problem in drawn(pool, pinned, "pool", 5, 0)} == {2}
    assert len(drawn(pool, pinned, "pool", 50, 0)) == 10
    assert drawn(pool, pinned, "math", 5, 0) == drawn(pool, pinned, "math", 5, 0) != drawn(pool, pinned, "math", 5, 1)


# -------------------------------------------------------------------------------------------------------------- hints


RIGHT, WRONG, SILENT = (rollout("p", 0, verdict) for verdict in ("correct", "incorrect", "no_boxed"))
CUT = rollout("p", 0, "truncated", finish_reason="length", token_count=100)
THINKING = replace(CUT, verdict="unfinished_thinking")


def trial(*rollouts: Rollout, section: str = "harvest") -> Trial:
    short = {"max_completion_length": 40}
    config = load(MINIMAL | {"warmup": short | {"steps": [0, 2]}, "calibration": {"max_completion_length": 100}})
    return Trial(Grid(config), "demo", "pool", section, Decoding(1, 1.3, 1.0, 100, 64, 0), [*rollouts], 2.0)


def test_the_summary_counts() -> None:
    assert list(summary(trial(RIGHT, RIGHT, WRONG, CUT, SILENT)))[:7] == [
        "demo: 5 problems of pool, temperature 1.3, at most 100 tokens (harvest)",
        "  right               2 of 5",
        "  wrong               1 of 5",
        "  no answer found     2 of 5",
        "  cut off             1 of 5",
        "  tokens             28.0 a completion, 100 at most",
        "  seconds             2.0, without loading the model",
    ]


@pytest.mark.parametrize(
    ("rollouts", "expected"),
    [
        ([RIGHT, WRONG], []),
        ([RIGHT] * 11 + [CUT], []),  # fewer than a tenth
        (
            [RIGHT, WRONG, CUT, THINKING],
            [
                "2 of 4 are cut off at harvest.max_completion_length=100, 1 of them before </think>: raise it, or "
                "switch thinking off in chat_template_kwargs, if the template can",
                "2 of 4 are longer than max_completion_length=40 of warmup",
            ],
        ),
        (
            [RIGHT, replace(THINKING, token_count=30)],
            [
                "1 of 2 are cut off at harvest.max_completion_length=100, 1 of them before </think>: raise it, or "
                "switch thinking off in chat_template_kwargs, if the template can"
            ],
        ),
        ([RIGHT, replace(WRONG, token_count=41)], ["1 of 2 are longer than max_completion_length=40 of warmup"]),
        ([RIGHT, SILENT], [r"1 of 2 ended without a \boxed{...}"]),
        ([RIGHT, RIGHT], ["every answer is right"]),
        ([WRONG, WRONG], ["no answer is right"]),
        ([rollout("p", 0, "no_reference")], []),
    ],
)
def test_hints_name_the_key_to_change(rollouts: list[Rollout], expected: list[str]) -> None:
    lines = list(hints(trial(*rollouts)))
    assert [line[: len(words)] for line, words in zip(lines, expected, strict=True)] == expected
