"""`snakemake --logger g2d`: what a newcomer sees of a run, on a terminal and in a file."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from snakemake_interface_logger_plugins.tests import TestLogHandlerBase

from g2d.analysis.calibration import with_mixes
from g2d.experiment.config import load
from g2d.tables.frames import write_table
from snakemake_logger_plugin_g2d import LogHandler
from snakemake_logger_plugin_g2d.accuracies import Accuracies
from snakemake_logger_plugin_g2d.remaining import Remaining
from tests.workflow import forked

REPOSITORY = Path(__file__).parents[2]
SNAKEFILE = """
rule all:
    input: "a", "b"
rule make:
    output: "{name}"
    message: "Make {wildcards.name}"
    shell: "{commands}"
""".replace("{commands}", "test ! -e no-{wildcards.name} && touch {output}")


class TestAsSnakemakeAsksOfAPlugin(TestLogHandlerBase):
    __test__ = True

    def get_log_handler_cls(self) -> type[LogHandler]:
        return LogHandler

    def get_log_handler_settings(self) -> Any:
        return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [forked.python(), "-m", "snakemake", *arguments, "--cores", "1", "--logger", "g2d"]


def printed(folder: Path, *arguments: str) -> str:
    """Output of a run without a terminal."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command(*arguments), cwd=folder, check=False, **streams).stdout


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """Output of a run on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command(*arguments), cwd=folder, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        output = b""
        with suppress(OSError):  # on Linux, when the last writer has closed it
            while part := os.read(ours, 4096):
                output += part
    os.close(ours)
    return output.decode().replace("\r\n", "\n")


def test_without_a_terminal_progress_is_lines(folder: Path) -> None:
    text = printed(folder)
    assert text.startswith("0 of 3 jobs, less than a minute left: Make ")
    assert text.splitlines()[-1].startswith("3 jobs done in ")
    assert "\r" not in text
    (log,) = (folder / ".snakemake/log").iterdir()  # complete
    assert "Make a" in log.read_text() and "3 of 3 steps (100%) done" in log.read_text()
    assert "Nothing to be done" in printed(folder)


def test_one_line_in_place_on_a_terminal(folder: Path) -> None:
    text = on_a_terminal(folder)
    states = text.split("\r\033[K")
    assert any(state.startswith("1 of 3 jobs, less than a minute left: ") for state in states)
    assert states[-1].startswith("3 jobs done in ")
    assert text.count("\n") == 1
    assert max(map(len, states)) < 80


@pytest.mark.parametrize("show", [printed, on_a_terminal])
def test_an_error_is_printed_as_ever(folder: Path, show: Any) -> None:
    (folder / "no-b").touch()
    text = show(folder, "b")
    assert "Error in rule make:" in text
    assert "output: b" in text
    assert "done in" not in text


def test_messages_of_snakemake_are_printed_if_nothing_runs(folder: Path) -> None:
    planned = printed(folder, "-n")
    assert "Make a" in planned
    assert "This was a dry-run" in planned
    assert "jobs done" not in planned


def test_quiet_is_quiet(folder: Path) -> None:
    assert printed(folder, "--quiet", "all") == ""
    assert (folder / "a").exists()


def test_remaining_hours_follow_from_jobs_of_the_same_rule() -> None:
    remaining = Remaining()
    remaining.cores = 2
    remaining.plan({"train_dpo": 4, "all": 1, "total": 5})
    remaining.begin(1, "train_dpo", 0.0)
    remaining.end(1, 600.0)
    remaining.begin(2, "train_dpo", 600.0)
    assert remaining.seconds(600.0) == 3 * 600 / 2
    assert remaining.seconds(900.0) == 300 / 2 + 2 * 600 / 2
    assert remaining.seconds(10_000.0) == 2 * 600 / 2, "a slow job has no less than nothing left"
    remaining.done = 1
    assert remaining.sentence(600.0) == "1 of 5 jobs, about 15 min left"


def test_a_slow_machine_scales_the_guesses() -> None:
    fast, slow = Remaining(), Remaining()
    for remaining, seconds in ((fast, 8.0), (slow, 80.0)):
        remaining.plan({"train_dpo": 1, "evaluate": 7, "total": 8})
        remaining.begin(1, "train_dpo", 0.0)
        remaining.end(1, seconds)
    assert slow.seconds(0.0) == pytest.approx(10 * fast.seconds(0.0))


def test_accuracies_appear_when_a_policy_has_answered_every_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(yaml.safe_load((REPOSITORY / "config/config.yaml").read_text()))
    (tmp_path / "results").mkdir()
    config.save("results/config.yaml")
    accuracies, lines = Accuracies(), []
    for policy, benchmark, rewards in (
        ("demo/seed0/dpo/g2/k25", "arithmetic", [1.0, 1.0, 0.0, 1.0]),
        ("demo/base", "arithmetic", [1.0, 0.0]),
        ("demo/base", "word-problems", [1.0]),
        ("demo/seed0/dpo/g2/k25", "word-problems", [0.0]),
    ):
        pd.DataFrame({"reward": rewards}).to_parquet("answers.parquet")
        lines += [
            line.split() for line in accuracies.add({"policy": policy, "benchmark": benchmark}, ["answers.parquet"])
        ]
    assert lines == [
        ["accuracy", "arithmetic", "word-problems"],
        ["base", "50.0", "%", "100.0", "%"],
        ["g2d", "K=25", "G=2", "seed", "0", "75.0", "%", "0.0", "%"],
    ]


def finish(rule: str, wildcards: dict[str, str], output: list[str]) -> None:
    """Let a handler see a job begin and end."""
    handler = TestAsSnakemakeAsksOfAPlugin()._create_handler()
    begun = {"event": "job_info", "jobid": 1, "rule_name": rule, "rule_msg": None}
    for values in (begun | {"wildcards": wildcards, "output": output}, {"event": "job_finished", "job_id": 1}):
        record = logging.LogRecord("snakemake", logging.INFO, "", 0, "", (), None)
        record.__dict__.update(values)
        handler.emit(record)


@pytest.mark.parametrize(("mixed", "printed_words"), [(0, ["demo", "calibration.levels", "prompt.examples"]), (6, [])])
def test_a_calibration_without_mixed_outcomes_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mixed: int, printed_words: list[str]
) -> None:
    """When the training set is chosen, with the keys to change."""
    table = pd.DataFrame([{"level": 1, "n": 10, "pass_at_1": 0.1, "pairable": mixed, "all_wrong": 10 - mixed}])
    table["all_correct"] = 0
    write_table(tmp_path / "levels.csv", with_mixes(table, [1]))
    finish("select_training_set", {"model": "demo"}, [str(tmp_path / "train.jsonl"), str(tmp_path / "levels.csv")])
    output = capsys.readouterr().err
    assert all(word in output for word in printed_words)
    assert ("nothing to learn" in output) is (mixed == 0)


def test_a_result_that_cannot_be_read_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The handler, in a thread of Snakemake, reports the error as handlers of Python's logging do."""
    monkeypatch.chdir(tmp_path)  # whoever runs the tests may have run the demonstration here
    finish("evaluate", {"policy": "demo/base", "benchmark": "arithmetic"}, ["nowhere.parquet"])
    assert "No such file" in capsys.readouterr().err
