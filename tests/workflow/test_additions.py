"""A finished grid with a sweep; test_reruns.py has the jobs that it plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.files import read_json
from tests.workflow.conftest import Project, copy_of_micro
from tests.workflow.test_grid import OF_REGIMES as SUMMARIES
from tests.workflow.test_sweep import DEVELOPMENT, RATES, RFT

FURTHER = {"source": "synthetic", "family": "arithmetic", "split": "test", "n": 12, "levels": [2, 3], "seed": 11}
POLICIES = 7  # M0, DPO at K = 0, 2, 4, GRPO with G = 2 and 4, RFT
# Tables that the configuration has no longer, and files in the same folder that make_tables does not write.
FORMER_TABLES, OTHER_FILES = ["auto.csv", "selection.csv"], ["mine.csv"]


@pytest.fixture(scope="module")
def added_config(micro_config: dict[str, Any]) -> dict[str, Any]:
    return micro_config | {
        "benchmarks": {"arithmetic": micro_config["benchmarks"]["arithmetic"], "further": FURTHER},
        "ablations": {},
        "regimes": {"rft": RFT},
        "sweep": with_rates(RATES),
    }


def with_rates(rates: list[float]) -> dict[str, Any]:
    return {"development": DEVELOPMENT, "regimes": {"rft": {"learning_rate": rates}}}


@pytest.fixture(scope="module")
def extended(
    micro_config: dict[str, Any], added_config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Project, dict[str, int]]:
    """The finished grid with the added sections, and the added jobs."""
    project = copy_of_micro(micro_config, tmp_path_factory.mktemp("added") / "g2d")
    for name in (*FORMER_TABLES, *OTHER_FILES):
        (project.results / "tables" / name).write_text("a,b\n1,2\n")
    return project, project.extended(added_config)


@pytest.fixture(scope="module")
def project(extended: tuple[Project, dict[str, int]]) -> Project:
    return extended[0]


def test_only_jobs_of_the_added_sections_run(extended: tuple[Project, dict[str, int]]) -> None:
    project, planned = extended
    sweep = {"check_development": 2, "choose_settings": 1, "train_rft": 3 + 1, "make_sweep_table": 1}
    benchmark = {"load_problems": 2, "check_leakage": 2, "evaluate": 3 + POLICIES + 1}
    assert planned == sweep | benchmark | SUMMARIES
    assert project.planned() == {}


def test_former_tables_go_to_the_trash(project: Project) -> None:
    tables = {path.name for path in (project.results / "tables").iterdir()}
    assert tables & {*FORMER_TABLES, *OTHER_FILES} == {*OTHER_FILES}
    assert sorted(path.name for path in project.results.glob(".trash/*/tables/*")) == sorted(FORMER_TABLES)


# --------------------------------------------------------------------------------------------------------------- sweep


def test_the_grid_is_trained_with_the_chosen_settings(project: Project) -> None:
    results = project.results
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

    # Candidates are in no table of policies, have no card, and their cost is in separate rows.
    for name in ("main", "comparisons"):
        assert "@" not in (results / f"tables/{name}.csv").read_text()
    assert not (candidate / "adapter/README.md").exists()
    cost = pd.read_csv(results / "tables/cost.csv").set_index(["policy", "stage"]).n_jobs
    assert dict(cost["sweep"]) == {"train_rft": 3, "evaluate": 3}
    assert dict(cost["rft"])["train_rft"] == 1
    assert f"learning_rate={chosen}" in (results / "report/index.html").read_text()


def test_another_list_of_candidates_with_the_same_choice_trains_nothing_again(
    project: Project, added_config: dict[str, Any], tmp_path: Path
) -> None:
    project = project.copied(tmp_path / "g2d")
    chosen = read_json(project.results / "micro/sweep/rft.json")["settings"]["learning_rate"]
    losing = next(rate for rate in RATES if rate != chosen)
    project.configure(added_config | {"sweep": with_rates([rate for rate in RATES if rate != losing])})
    assert project.planned("sweep") == {"choose_settings": 1, "make_sweep_table": 1, "sweep": 1}
    project.build("sweep", "--quiet", "rules")
    assert project.planned() == SUMMARIES
