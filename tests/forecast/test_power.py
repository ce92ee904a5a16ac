"""Planned power of a grid, by its families of tests and its problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from g2d.cli import main
from g2d.experiment.config import Config, read
from g2d.forecast.power import benchmark_sizes, planned_words
from g2d.tables.power import planned_power
from tests.experiment.test_config import MINIMAL


def grid(**keys: Any) -> Config:
    return Config.model_validate(MINIMAL | keys)


def test_families_and_problems_of_the_grid_are_used() -> None:
    config = grid(
        warmup={"steps": [0, 10, 20, 30], "group_sizes": [2, 4]},
        seeds=[0, 1],
        benchmarks={"easy": {"source": "synthetic", "family": "arithmetic", "split": "test", "n": 300}},
    )
    assert benchmark_sizes(config, "nowhere") == {"easy": 300}
    table = planned_power(config, {"easy": 300})
    against_m0 = table[table["against"] == "K=0"]
    assert set(against_m0["family_size"]) == {6}  # three K with two group sizes
    assert list(against_m0["n_seeds"]) == [1, 2, 3, 5, 8, 12]
    assert list(against_m0.loc[against_m0["this_grid"], "n_seeds"]) == [2]
    assert set(table["against"]) == {"K=0", "every other K"}
    for points in ("0.5", "1", "2"):
        assert (against_m0[f"difference_sd_{points}"] > against_m0[f"margin_sd_{points}"]).all()
    assert (against_m0["difference_sd_0.5"] <= against_m0["difference_sd_2"]).all()
    words = "\n".join(planned_words(config, {"easy": 300}))
    assert "easy, 300 problems, K against K=0, corrected for 6 comparisons" in words
    assert "| 2 (this grid) |" in words


def test_a_grid_with_nothing_to_compare_has_no_power() -> None:
    assert planned_words(grid(warmup={"steps": [0]}), {"easy": 100}) == []


def test_the_size_of_an_unloaded_benchmark_is_a_guess(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = read(Path("config/paper.yaml"))
    assert set(benchmark_sizes(config, tmp_path).values()) == {None}
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems/math500.jsonl").write_text("{}\n" * 17)
    assert benchmark_sizes(config, tmp_path)["math500"] == 17
    assert any("500 problems (a guess: not loaded yet)" in part for part in planned_words(config, {"math500": None}))


def test_plan_prints_the_power(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "config/config.yaml", "--memory", "80"])
    screen = capsys.readouterr().out
    assert "arithmetic, 500 problems, K against K=0, corrected for 3 comparisons" in screen
    main(["plan", "config/config.yaml", "--memory", "80", "--json"])
    rows = json.loads(capsys.readouterr().out)["power"]
    assert {row["benchmark"] for row in rows} == {"arithmetic", "word-problems"}
