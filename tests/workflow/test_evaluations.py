"""A policy is evaluated in one job, which keeps the answers to benchmarks that did not change."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.cost import read_cost
from tests.attempts import read_attempts
from tests.workflow.conftest import Project
from tests.workflow.test_reruns import another_benchmark

POLICY = "results/micro/seed0/dpo/g2/k2"
OLD = ("arithmetic", "word-problems")
ARITHMETIC = f"{POLICY}/eval/arithmetic.parquet"
STORIES = f"{POLICY}/eval/word-problems.parquet"
MORE = f"{POLICY}/eval/more.parquet"
EDITED = "src/g2d/stages/evaluate_policy.py"
FAILS = """
_answer = answer


def answer(benchmark, sampler, meter):
    if "word-problems" in str(benchmark.answers):
        raise RuntimeError("the disk is full")
    _answer(benchmark, sampler, meter)
"""


@pytest.fixture(scope="module")
def config(micro_config: dict[str, Any]) -> dict[str, Any]:
    with_more = copy.deepcopy(micro_config)
    another_benchmark(with_more)
    return with_more


def costs(project: Project) -> dict[str, bytes]:
    """Return the costs of both benchmarks. They have times, so the same bytes are of the same evaluation."""
    return {name: (project.root / POLICY / f"eval/{name}.cost.json").read_bytes() for name in OLD}


def build(project: Project, *files: str) -> None:
    project.build("--quiet", "rules", "--", *files)


def test_a_new_benchmark_is_the_only_one_that_is_answered(own_micro_grid: Project, config: dict[str, Any]) -> None:
    grid = own_micro_grid
    before = costs(grid)
    grid.configure(config)
    build(grid, MORE)
    assert costs(grid) == before
    cost = read_cost(grid.root / POLICY / "eval/more.cost.json")
    assert (cost.own.stage, cost.own.job, cost.ancestry) == ("evaluate", f"{POLICY}/eval/more.cost", ())
    assert cost.own.tokens_generated == pd.read_parquet(grid.root / MORE)["token_count"].sum()
    assert grid.planned("--", ARITHMETIC, STORIES, MORE) == {}


def test_only_the_benchmark_whose_problems_changed_is_answered_again(
    own_micro_grid: Project, config: dict[str, Any]
) -> None:
    grid = own_micro_grid
    before = costs(grid)
    changed = copy.deepcopy(config)
    del changed["benchmarks"]["more"]
    changed["benchmarks"]["arithmetic"]["seed"] = 77
    grid.configure(changed)
    build(grid, ARITHMETIC, STORIES)
    after = costs(grid)
    assert after["word-problems"] == before["word-problems"]
    assert after["arithmetic"] != before["arithmetic"]


def test_a_failed_job_keeps_the_benchmarks_that_it_finished(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    grid = own_micro_grid
    settings = micro_config | {"evaluation": micro_config["evaluation"] | {"max_completion_length": 20}}
    before = costs(grid)
    grid.configure(settings)
    text = (grid.root / EDITED).read_text()
    (grid.root / EDITED).write_text(text + FAILS)
    assert "the disk is full" in grid.refused("--cores", "1", "--quiet", "rules", "--", ARITHMETIC, STORIES)
    assert not (grid.root / ARITHMETIC).exists()  # Snakemake deletes what a failed job left
    [kept] = (grid.results / "answers/micro/seed0/dpo/g2/k2/eval/arithmetic").glob("cost.json")
    finished = kept.read_bytes()
    (grid.root / EDITED).write_text(text)
    build(grid, ARITHMETIC, STORIES)
    after = costs(grid)
    assert after["arithmetic"] == finished != before["arithmetic"]
    assert after["word-problems"] != before["word-problems"]


def test_damaged_answers_are_not_kept(own_micro_grid: Project) -> None:
    grid = own_micro_grid
    arithmetic = (grid.root / ARITHMETIC).read_bytes()
    stories = (grid.root / STORIES).read_bytes()
    spent = costs(grid)
    kept = grid.results / "answers/micro/seed0/dpo/g2/k2/eval/arithmetic/rollouts.parquet"
    kept.write_bytes(kept.read_bytes()[:-1])
    (grid.root / ARITHMETIC).unlink()
    (grid.root / STORIES).unlink()
    build(grid, ARITHMETIC, STORIES)
    assert (grid.root / ARITHMETIC).read_bytes() == arithmetic
    assert (grid.root / STORIES).read_bytes() == stories
    after = costs(grid)
    assert after["arithmetic"] != spent["arithmetic"]
    assert after["word-problems"] == spent["word-problems"]


def test_a_forced_job_answers_all_benchmarks_again(own_micro_grid: Project) -> None:
    grid = own_micro_grid
    spent = costs(grid)
    grid.build("--quiet", "rules", "-R", ARITHMETIC, "--", ARITHMETIC)
    after = costs(grid)
    for name in OLD:
        assert after[name] != spent[name]


def test_the_costs_of_all_benchmarks_are_those_of_the_job(own_micro_grid: Project) -> None:
    grid = own_micro_grid
    attempts = read_attempts(grid.results / "attempts/evaluate")
    [attempt] = [attempt for attempt in attempts if attempt.cost.job.startswith(f"{POLICY}/")]
    first = read_cost(grid.root / POLICY / "eval/arithmetic.cost.json").own
    second = read_cost(grid.root / POLICY / "eval/word-problems.cost.json").own
    assert attempt.cost.tokens_generated == first.tokens_generated + second.tokens_generated
    assert 0.8 * attempt.cost.cpu_s < first.cpu_s + second.cpu_s <= attempt.cost.cpu_s
