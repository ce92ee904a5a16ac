"""`g2d power`: the same numbers as `g2d plan` for the same design, and the reach of published accuracies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from g2d.cli import main
from g2d.experiment.config import Config
from g2d.forecast.design_power import components, reach, read_accuracies
from g2d.tables.power import planned_power
from tests.experiment.test_config import MINIMAL


@pytest.fixture
def accuracies(tmp_path: Path) -> Path:
    file = tmp_path / "accuracies.csv"
    file.write_text("policy,accuracy\nGRPO,50\nDPO,51\nG2D,70\n")
    return file


def test_a_design_has_the_power_of_a_grid_of_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    config = Config.model_validate(MINIMAL | {"warmup": {"steps": [0, 10, 20, 30]}, "seeds": [0, 1, 2, 3, 4]})
    planned = planned_power(config, {"easy": 500})
    (row,) = planned[planned["this_grid"] & (planned["against"] == "K=0")].to_dict("records")
    assert main(["power", "--questions", "500", "--seeds", "5", "--policies", "4", "--sd", "1"]) == 0
    screen = capsys.readouterr().out
    cells = re.search(r"^\| 5 \| .* \| (\S+) / (\S+) \| .* \|$", screen, re.MULTILINE)
    assert cells is not None
    assert cells.groups() == (f"{100 * row['difference_sd_1']:.1f}", f"{100 * row['margin_sd_1']:.1f}")
    assert f"a difference of {100 * row['difference_sd_1']:.1f} points" in " ".join(screen.split())


def test_published_differences_are_within_reach_or_not(accuracies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", str(accuracies), "--questions", "500", "--seeds", "5"]) == 0
    screen = capsys.readouterr().out
    assert "| DPO | 51 | +1.0 | no |" in screen
    assert "| G2D | 70 | +20.0 | yes |" in screen


def test_a_file_can_be_an_excerpt_of_more_policies(accuracies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", str(accuracies), "--questions", "500", "--seeds", "1", "--policies", "9"]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "corrected for 8 comparisons" in screen
    assert "these weights" in screen
    rows = read_accuracies(accuracies, questions=500, seeds=1)
    assert reach(rows, 9) > reach(rows) == reach(rows, 3)


def test_more_seeds_questions_or_samples_reach_further(accuracies: Path) -> None:
    few = read_accuracies(accuracies, questions=200, seeds=3)
    for column, more in {"questions": 2000, "seeds": 12, "samples": 16}.items():
        assert reach(few.assign(**{column: more})) < reach(few)
    assert components(2.0, 4).answer == components(2.0).answer / 4


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("policy,accuracy\na,50\nb,51\n", [], "questions"),
        ("policy,accuracy\na,50\nb,151\n", ["--questions", "9", "--seeds", "2"], "accuracy"),
        ("policy,accuracy\na,.5\nb,.6\n", ["--questions", "9", "--seeds", "2"], "percent"),
        ("policy,accuracy\na,50\n", ["--questions", "9", "--seeds", "2"], "one policy"),
        ("name,accuracy\na,50\nb,51\n", ["--questions", "9", "--seeds", "2"], "policy"),
        ("title: x\nseeds: 3\nsteps: [0, 25, 50]\n", ["--questions", "9", "--seeds", "2"], "CSV"),
        ("", ["--questions", "9", "--seeds", "2"], "CSV"),
    ],
)
def test_bad_files_are_named_with_column_and_fix(
    text: str, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "accuracies.csv"
    file.write_text(text)
    assert main(["power", str(file), *arguments]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert message in error


def test_a_design_without_its_numbers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", "--questions", "500"]) == 2
    assert "--seeds" in capsys.readouterr().err
