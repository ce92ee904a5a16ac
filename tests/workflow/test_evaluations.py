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


def answers(project: Project, benchmark: str) -> str:
    return f"{POLICY}/eval/{benchmark}.parquet"


def costs(project: Project, *benchmarks: str) -> dict[str, bytes]:
    """Costs have times, so the same bytes are of the same evaluation."""
    return {name: (project.root / POLICY / f"eval/{name}.cost.json").read_bytes() for name in benchmarks}


def build(project: Project, *benchmarks: str) -> None:
    project.build("--quiet", "rules", "--", *(answers(project, name) for name in benchmarks))


def test_a_new_benchmark_is_the_only_one_that_is_answered(own_micro_grid: Project, config: dict[str, Any]) -> None:
    grid = own_micro_grid
    before = costs(grid, *OLD)
    grid.configure(config)
    build(grid, "more")
    assert costs(grid, *OLD) == before
    cost = read_cost(grid.root / POLICY / "eval/more.cost.json")
    assert (cost.own.stage, cost.own.job, cost.ancestry) == ("evaluate", f"{POLICY}/eval/more.cost", ())
    assert cost.own.tokens_generated == pd.read_parquet(grid.root / answers(grid, "more"))["token_count"].sum()
    assert grid.planned("--", *(answers(grid, name) for name in (*OLD, "more"))) == {}


def test_only_the_benchmark_whose_problems_changed_is_answered_again(
    own_micro_grid: Project, config: dict[str, Any]
) -> None:
    grid = own_micro_grid
    before = costs(grid, *OLD)
    changed = copy.deepcopy(config)
    changed["benchmarks"] = {name: changed["benchmarks"][name] for name in OLD}
    changed["benchmarks"]["arithmetic"]["seed"] = 77
    grid.configure(changed)
    build(grid, *OLD)
    after = costs(grid, *OLD)
    assert after["word-problems"] == before["word-problems"]
    assert after["arithmetic"] != before["arithmetic"]


def test_a_failed_job_keeps_the_benchmarks_that_it_finished(
    own_micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    grid = own_micro_grid
    settings = micro_config | {"evaluation": micro_config["evaluation"] | {"max_completion_length": 20}}
    before = costs(grid, *OLD)
    grid.configure(settings)
    names = [answers(grid, name) for name in OLD]
    text = (grid.root / EDITED).read_text()
    (grid.root / EDITED).write_text(text + FAILS)
    assert "the disk is full" in grid.refused("--cores", "1", "--quiet", "rules", "--", *names)
    assert not (grid.root / names[0]).exists()  # Snakemake deletes what a failed job left
    [kept] = (grid.results / "answers/micro/seed0/dpo/g2/k2/eval/arithmetic").glob("cost.json")
    finished = kept.read_bytes()
    (grid.root / EDITED).write_text(text)
    build(grid, *OLD)
    after = costs(grid, *OLD)
    assert after["arithmetic"] == finished != before["arithmetic"]
    assert after["word-problems"] != before["word-problems"]


def test_damaged_answers_are_not_kept(own_micro_grid: Project) -> None:
    grid = own_micro_grid
    before = {name: (grid.root / answers(grid, name)).read_bytes() for name in OLD}
    spent = costs(grid, *OLD)
    kept = grid.results / "answers/micro/seed0/dpo/g2/k2/eval/arithmetic/rollouts.parquet"
    kept.write_bytes(kept.read_bytes()[:-1])
    for name in OLD:
        (grid.root / answers(grid, name)).unlink()
    build(grid, *OLD)
    assert {name: (grid.root / answers(grid, name)).read_bytes() for name in OLD} == before
    after = costs(grid, *OLD)
    assert after["arithmetic"] != spent["arithmetic"]
    assert after["word-problems"] == spent["word-problems"]


def test_a_forced_job_answers_all_benchmarks_again(own_micro_grid: Project) -> None:
    grid = own_micro_grid
    spent = costs(grid, *OLD)
    grid.build("--quiet", "rules", "-R", answers(grid, "arithmetic"), "--", answers(grid, "arithmetic"))
    after = costs(grid, *OLD)
    assert all(after[name] != spent[name] for name in OLD)


def test_the_costs_of_all_benchmarks_are_those_of_the_job(own_micro_grid: Project) -> None:
    grid = own_micro_grid
    attempts = read_attempts(grid.results / "attempts/evaluate")
    [attempt] = [attempt for attempt in attempts if attempt.cost.job.startswith(f"{POLICY}/")]
    parts = [read_cost(grid.root / POLICY / f"eval/{name}.cost.json").own for name in OLD]
    assert attempt.cost.tokens_generated == sum(part.tokens_generated for part in parts)
    assert 0.8 * attempt.cost.cpu_s < sum(part.cpu_s for part in parts) <= attempt.cost.cpu_s
