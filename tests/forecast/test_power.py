"""Planned power of a grid, by its families of tests and its problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from g2d.analysis.statistics import error_of_difference
from g2d.checks.load import read
from g2d.cli import main
from g2d.config.sections import Config
from g2d.forecast.power import (
    DIFFER,
    FOR_EVERY_SEED,
    Size,
    benchmark_sizes,
    planned_power,
    planned_words,
    smallest_difference,
)
from g2d.problems.problem import write_problems
from g2d.problems.sources import load_problems
from tests.configs import MINIMAL
from tests.frames import problems


def grid(**keys: Any) -> Config:
    return Config.model_validate(MINIMAL | keys)


@pytest.fixture
def two_seeds() -> Config:
    return grid(
        warmup={"steps": [0, 10, 20, 30], "group_sizes": [2, 4]},
        seeds=[0, 1],
        benchmarks={"easy": {"source": "synthetic", "family": "arithmetic", "split": "test", "n": 300}},
    )


def test_families_and_problems_of_the_grid_are_used(two_seeds: Config) -> None:
    rows = pd.DataFrame(planned_power(two_seeds, {"easy": Size(300, 300)}))
    assert rows["family_size"].eq(6).all()  # three K with two group sizes
    assert rows["n_seeds"].tolist() == [2, 3, 5, 8]
    assert rows["this_grid"].tolist() == [True, False, False, False]


def test_problems_of_a_cluster_are_one_question(two_seeds: Config, tmp_path: Path) -> None:
    """Of four rows with two stories, and of generated problems with their expressions; before and after loading."""
    stories = pd.DataFrame({"problem": ["0?", "1?", "2?", "3?"], "answer": "1", "story": [0, 1, 0, 1]})
    stories.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    own = {"source": "local", "path": str(tmp_path / "rows.jsonl"), "fields": {"cluster": "story"}}
    config = grid(benchmarks=two_seeds.model_dump()["benchmarks"] | {"own": own})
    sizes = benchmark_sizes(config, tmp_path)
    assert sizes["own"] == Size(4, 2)
    (tmp_path / "problems").mkdir()
    for name, source in config.benchmarks.items():
        write_problems(tmp_path / f"problems/{name}.jsonl", load_problems(name, source))
    assert benchmark_sizes(config, tmp_path) == sizes
    easy = sizes["easy"]
    assert easy is not None
    assert easy.problems == 300 > easy.clusters > 100
    words = "\n".join(planned_words(two_seeds, {"easy": Size(300, 40)}))
    assert "easy, 40 groups of 300 problems, corrected for 6 comparisons" in words
    of_groups, of_problems = (differences(two_seeds, Size(n, 40)) for n in (300, 40))
    for one, other in zip(of_groups, of_problems, strict=True):  # but for two degrees of freedom
        assert list(one.values()) == pytest.approx(list(other.values()), abs=0.001)


def test_only_benchmarks_that_are_tested_are_planned(two_seeds: Config) -> None:
    [easy] = two_seeds.model_dump()["benchmarks"].values()
    config = grid(benchmarks={"development": easy | {"select_by": True, "split": "train"}, "easy": easy})
    assert set(benchmark_sizes(config)) == {"easy"}


def differences(config: Config, size: Size) -> list[dict[float, float]]:
    return [row["differences"] for row in planned_power(config, {"easy": size})]


def test_more_seeds_and_less_deviation_find_smaller_differences(two_seeds: Config) -> None:
    rows = list(planned_power(two_seeds, {"easy": Size(300, 300)}))
    for sd in (0.01, 0.02, 0.05):
        differences = [row["differences"][sd] for row in rows]
        assert differences == sorted(differences, reverse=True)
    assert list(rows[2]["differences"].values()) == sorted(rows[2]["differences"].values())


def test_the_family_and_the_seeds_of_the_grid_are_named(two_seeds: Config) -> None:
    words = "\n".join(planned_words(two_seeds, {"easy": Size(300, 300)}))
    assert "easy, 300 problems, corrected for 6 comparisons" in words
    assert "| 2 (this grid) | - | - | - | - |" in words


@pytest.mark.parametrize(
    ("n_seeds", "sd", "n"), [(1, 0.01, 500), (3, 0.01, 500), (5, 0.005, 500), (8, 0.02, 500), (5, 0.01, 30)]
)
def test_the_difference_is_found_with_about_80_percent(n_seeds: int, sd: float, n: int) -> None:
    rng = np.random.default_rng(0)
    runs = 300
    difference = smallest_difference(n_seeds, Size(n, n), sd, family=3)
    questions = rng.normal(0, FOR_EVERY_SEED**0.5, (runs, 1, n))
    answers = rng.normal(0, (DIFFER - FOR_EVERY_SEED) ** 0.5, (runs, n_seeds, n))
    seeds = rng.normal(0, 2**0.5 * sd * (n_seeds > 1), (runs, n_seeds, 1))
    found = [error_of_difference(values).p_value() <= 0.05 / 3 for values in difference + questions + answers + seeds]
    assert np.mean(found) == pytest.approx(0.79, abs=0.07)


def test_a_grid_with_nothing_to_compare_has_no_power() -> None:
    assert planned_words(grid(warmup={"steps": [0]}), {"easy": Size(100, 100)}) == []


def test_the_size_of_an_unloaded_benchmark_is_a_guess(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = read(Path("config/paper.yaml"))
    assert set(benchmark_sizes(config, tmp_path).values()) == {None}
    (tmp_path / "problems").mkdir()
    write_problems(tmp_path / "problems/math500.jsonl", problems(17))
    assert benchmark_sizes(config, tmp_path)["math500"] == Size(17, 17)
    assert "500 problems (a guess: not loaded yet)" in "\n".join(planned_words(config, {"math500": None}))


def test_plan_prints_the_power(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "config/config.yaml", "--memory", "80"])
    screen = capsys.readouterr().out
    assert "groups of 500 problems, corrected for 3 comparisons" in screen
    main(["plan", "config/config.yaml", "--memory", "80", "--json"])
    rows = json.loads(capsys.readouterr().out)["power"]
    assert {row["benchmark"] for row in rows} == {"arithmetic", "word-problems"}
