"""A sweep in the real graph: chosen before a benchmark is opened, taken over by the grid, paid for by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.files import read_json
from tests.workflow import forked
from tests.workflow.conftest import Project
from tests.workflow.test_grid import OF_REGIMES as SUMMARIES

PLANNED = Path(__file__).with_name("planned_jobs.py")
RFT = {"regime": "rft", "steps": [2], "epochs": 1}
DEVELOPMENT = {"source": "synthetic", "family": "arithmetic", "split": "development", "n": 30}
RATES = [1e-5, 5e-4, 5e-3]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    return Project.create(tmp_path_factory.mktemp("sweep") / "g2d", micro_config)


def planned_jobs(project: Project, *arguments: str) -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(project.root / "src")}
    status, printed = forked.call([str(PLANNED), *arguments], project.root, environment)
    assert status == 0, printed
    found: list[dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return found


def behind(jobs: list[dict[str, Any]], number: int) -> set[int]:
    """The jobs that one needs, at any distance."""
    found: set[int] = set()
    waiting = [number]
    while waiting:
        new = set(jobs[waiting.pop()]["needs"]) - found
        found |= new
        waiting += new
    return found


def test_no_benchmark_is_answered_before_everything_is_chosen(project: Project, micro_config: dict[str, Any]) -> None:
    online = {"regime": "semi_online_dpo", "steps": [2], "responses": 4, "prompts_per_update": 8}
    online["max_completion_length"] = 32
    regimes = {name: {"learning_rate": RATES} for name in ("warmup", "dpo", "rft", "online")}
    sweep = {"development": 40, "regimes": regimes, "at": {"dpo": 0}}
    project.configure(micro_config | {"regimes": {"rft": RFT, "online": online}, "sweep": sweep})
    jobs = planned_jobs(project)
    chosen = [number for number, job in enumerate(jobs) if job["rule"] == "choose_settings"]
    assert len(chosen) == 4
    for number in chosen:
        evaluations = [jobs[other] for other in behind(jobs, number) if jobs[other]["rule"] == "evaluate"]
        # RFT is tuned on the harvest of a warm-up that waits for its own choice.
        swept = Path(jobs[number]["output"][0]).stem
        assert len(evaluations) == (6 if swept == "rft" else 3)
        assert {Path(job["output"][0]).stem for job in evaluations} == {"development"}
    # Every training of the grid waits for its choice, and no candidate does.
    for job in jobs:
        if job["rule"].startswith("train_"):
            waits = any("/sweep/" in file for file in job["input"])
            assert waits != any("@" in file for file in job["output"]), job["output"]
    # What is held out of the pool is neither calibrated nor trained on.
    readers = {rule for job in jobs if "results/problems/pool.jsonl" in job["input"] for rule in [job["rule"]]}
    assert readers == {"hold_out_development", "check_leakage"}
    (held_out,) = (job for job in jobs if job["rule"] == "hold_out_development")
    assert held_out["output"] == ["results/problems/development.jsonl", "results/problems/pool.training.jsonl"]

    counts = project.planned("sweep")
    trained = {"train_grpo": 3 + 1, "train_dpo": 3, "train_rft": 3, "train_semi_online_dpo": 3, "evaluate": 12}
    assert {rule: counts[rule] for rule in trained} == trained


def test_the_grid_is_trained_with_what_was_chosen(own_micro_grid: Project, micro_config: dict[str, Any]) -> None:
    def with_rates(rates: list[float]) -> dict[str, Any]:
        sweep = {"development": DEVELOPMENT, "regimes": {"rft": {"learning_rate": rates}}}
        return micro_config | {"regimes": {"rft": RFT}, "sweep": sweep}

    own_micro_grid.configure(with_rates(RATES))
    expected = {"load_problems": 1, "check_leakage": 1, "check_development": 2, "choose_settings": 1}
    expected |= {"train_rft": 3 + 1, "evaluate": 3 + 2, "make_sweep_table": 1}
    assert own_micro_grid.planned() == expected | SUMMARIES
    own_micro_grid.build("--quiet", "rules")
    assert own_micro_grid.planned() == {}

    results = own_micro_grid.results
    answers = {
        rate: pd.read_parquet(results / f"micro/seed0/rft@learning_rate-{rate}/g2/k2/eval/development.parquet")
        for rate in RATES
    }
    accuracies = {rate: rows.reward.mean() for rate, rows in answers.items()}
    chosen = min(rate for rate in RATES if accuracies[rate] == max(accuracies.values()))
    assert read_json(results / "micro/sweep/rft.json") == {"section": "rft", "settings": {"learning_rate": chosen}}
    table = pd.read_csv(results / "tables/sweep.csv")
    assert list(table.accuracy) == pytest.approx(list(accuracies.values()), abs=1e-6)
    assert list(table.settings[table.chosen]) == [f"learning_rate={chosen}"]

    # Same seed, same K, same rate: the policy of the grid is the candidate, bit for bit.
    folder, candidate = (results / f"micro/seed0/{name}/g2/k2" for name in ("rft", f"rft@learning_rate-{chosen}"))
    record = read_json(folder / "policy.json")
    assert record["settings"]["rft"]["learning_rate"] == chosen
    assert record["weights_sha256"] == read_json(candidate / "policy.json")["weights_sha256"]
    losing = next(rate for rate in RATES if rate != chosen)
    other = read_json(results / f"micro/seed0/rft@learning_rate-{losing}/g2/k2/policy.json")
    assert record["weights_sha256"] != other["weights_sha256"]

    # On no table of policies, on no card, and on a bill of its own.
    for name in ("main", "comparisons", "ablations", "regimes"):
        assert "@" not in (results / f"tables/{name}.csv").read_text()
    assert not (candidate / "adapter/README.md").exists()
    bill = pd.read_csv(results / "tables/cost.csv")
    jobs = bill[bill.policy == "sweep"].set_index("stage").n_jobs
    assert dict(jobs) == {"train_rft": 3, "evaluate": 3}
    assert dict(bill[bill.policy == "rft"].set_index("stage").n_jobs)["train_rft"] == 1
    said = (results / "methods.md").read_text().replace("\\", "")
    assert f"For rft, learning_rate={chosen:g}" in said
    assert f"peak learning rate {chosen:g}" in said
    assert f"learning_rate={chosen}" in (results / "report/index.html").read_text()

    # Another list that leads to the same choice trains nothing again once the choice is made.
    own_micro_grid.configure(with_rates([rate for rate in RATES if rate != losing]))
    assert own_micro_grid.planned("sweep") == {"choose_settings": 1, "make_sweep_table": 1, "sweep": 1}
    own_micro_grid.build("sweep", "--quiet", "rules")
    assert own_micro_grid.planned() == SUMMARIES
