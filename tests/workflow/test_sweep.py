"""The jobs of a sweep: settings are chosen before any benchmark is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.workflow.conftest import Project

RFT = {"regime": "rft", "steps": [2], "epochs": 1}
DEVELOPMENT = {"source": "synthetic", "family": "arithmetic", "split": "development", "n": 30}
RATES = [1e-5, 5e-4, 5e-3]


def behind(jobs: list[dict[str, Any]], number: int) -> set[int]:
    """The jobs that one needs, at any distance."""
    needed: set[int] = set()
    waiting = [number]
    while waiting:
        new = set(jobs[waiting.pop()]["needs"]) - needed
        needed |= new
        waiting += new
    return needed


def test_no_benchmark_is_answered_before_everything_is_chosen(project: Project, micro_config: dict[str, Any]) -> None:
    online = {"regime": "semi_online_dpo", "steps": [2], "responses": 4, "prompts_per_update": 8}
    online["max_completion_length"] = 32
    regimes = {name: {"learning_rate": RATES} for name in ("warmup", "dpo", "rft", "online")}
    sweep = {"development": 40, "regimes": regimes, "at": {"dpo": 0}}
    project.configure(micro_config | {"regimes": {"rft": RFT, "online": online}, "sweep": sweep})
    jobs = project.planned_jobs()
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
    # Development problems of the pool are neither calibrated nor trained on.
    readers = {rule for job in jobs if "results/problems/pool.jsonl" in job["input"] for rule in [job["rule"]]}
    assert readers == {"hold_out_development", "check_leakage"}
    (held_out,) = (job for job in jobs if job["rule"] == "hold_out_development")
    assert held_out["output"] == ["results/problems/development.jsonl", "results/problems/pool.training.jsonl"]

    counts = project.planned("sweep")
    trained = {"train_grpo": 3 + 1, "train_dpo": 3, "train_rft": 3, "train_semi_online_dpo": 3, "evaluate": 12}
    assert {rule: counts[rule] for rule in trained} == trained
