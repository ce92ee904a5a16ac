"""Recorded completions through the DAG: real text of real models on GSM8K, four rollouts per problem."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.workflow.conftest import Project


def boxed(solution: str) -> str:
    """The publisher's last line is `A: <number>`; the verifier wants a box."""
    return re.sub(r"\nA: (.*)\Z", lambda match: f"\n\\boxed{{{match[1]}}}", solution.rstrip())


@pytest.fixture(scope="module")
def gsm8k(tmp_path_factory: pytest.TempPathFactory, real_data: Path) -> tuple[Project, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("recorded")
    lines = (real_data / "gsm8k/example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    recorded = [
        {"prompt": row["question"], "completion": boxed(answer["solution"]), "is_correct": answer["is_correct"]}
        for row in rows
        for answer in (value for value in row.values() if isinstance(value, dict))
    ]
    frame = pd.DataFrame(recorded)
    frame.to_json(folder / "recorded.jsonl", orient="records", lines=True)
    test = {
        "source": "local",
        "path": str(real_data / "gsm8k/test.jsonl"),
        "fields": {"prompt": "question", "answer": "answer"},
        "answer_format": "gsm8k",
    }
    config: dict[str, Any] = {
        "title": "Recorded GSM8K",
        "seeds": [0],
        "models": {"published": {"source": "recorded", "path": str(folder / "recorded.jsonl")}},
        "pool": test,
        "benchmarks": {
            "math500": {
                "source": "local",
                "path": str(real_data / "math500/test.jsonl"),
                "fields": {"level": "level", "subject": "subject", "id": "unique_id"},
            }
        },
        "calibration": {"problems_per_level": 2000, "samples_per_prompt": 4, "window": [0, 1]},
        "training_set": {"n": 1319},
        "harvest": {"samples_per_prompt": 4},
    }
    project = Project.create(folder / "g2d", config)
    project.build("--quiet", "rules")
    return project, frame


def test_the_harvest_is_the_recorded_text(gsm8k: tuple[Project, pd.DataFrame]) -> None:
    project, recorded = gsm8k
    harvest = pd.read_parquet(project.results / "published/seed0/harvest/g0/k0/rollouts.parquet")
    assert len(harvest) == 4 * 1319
    assert sorted(harvest.completion_text) == sorted(recorded.completion)
    assert set(harvest.engine) == {"replay"}


def test_verdicts_agree_with_the_publishers_labels(gsm8k: tuple[Project, pd.DataFrame]) -> None:
    """The publisher compared strings; what remains are equal numbers that it marked as different."""
    project, recorded = gsm8k
    harvest = pd.read_parquet(project.results / "published/seed0/harvest/g0/k0/rollouts.parquet")
    labels = recorded.drop_duplicates(["prompt", "completion"]).set_index(["prompt", "completion"]).is_correct
    judged = harvest.set_index(["prompt_text", "completion_text"]).reward == 1
    published = labels.loc[judged.index]
    assert (judged.to_numpy() == published.to_numpy()).mean() > 0.99
    assert not (published & ~judged.to_numpy()).any()  # nothing the publisher accepts is lost


def test_tables_need_only_the_harvest(gsm8k: tuple[Project, pd.DataFrame]) -> None:
    project, _ = gsm8k
    harvest = pd.read_parquet(project.results / "published/seed0/harvest/g0/k0/rollouts.parquet")
    p_hat = harvest.groupby("problem_id").reward.mean()
    pairable = ((p_hat > 0) & (p_hat < 1)).sum()
    table = pd.read_csv(project.results / "tables/harvest.csv")
    assert (table.model[0], table.K[0], table.n_pairs[0]) == ("published", 0, pairable)
    assert table.harvest_pass_at_1[0] == pytest.approx(p_hat.mean(), rel=1e-5)
    pairs = (project.results / "published/seed0/harvest/g0/k0/pairs.jsonl").read_text().splitlines()
    assert len(pairs) == pairable
    calibration = pd.read_csv(project.results / "tables/calibration.csv")
    assert set(calibration.levels) == {"none", "all"}
    assert (calibration.n == 1319).all()
    assert pd.read_csv(project.results / "tables/main.csv").empty


def test_advice_on_recorded_completions_has_no_k_to_choose(gsm8k: tuple[Project, pd.DataFrame]) -> None:
    project, _ = gsm8k
    output = project.build("--quiet", "rules", "--", "advice")
    assert "K=0 looks best" in output
    assert "It is the only K." in output
    project.build("--quiet", "rules", "--", "advice_check")
    check = pd.read_csv(project.results / "tables/advice_check.csv").set_index("metric")
    assert check.found["n_pairs"] == pd.read_csv(project.results / "tables/harvest.csv").n_pairs[0]
    assert check.low["n_pairs"] <= check.predicted["n_pairs"] <= check.high["n_pairs"]
    assert "accuracy_minus_best_K" not in check.index
