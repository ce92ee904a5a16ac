"""A finished grid with a benchmark that selects checkpoints; test_reruns.py has its jobs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from tests.workflow.conftest import Project, copy_of_micro
from tests.workflow.micro import RFT, SUMMARIES

FURTHER = {
    "source": "synthetic",
    "family": "arithmetic",
    "split": "development",
    "n": 12,
    "levels": [2, 3],
    "seed": 11,
    "select_by": True,
}
POLICIES = 8  # M0, DPO at K = 0, 2, 4, GRPO with G = 2 and 4, RFT at K = 2, 4
# Tables that the configuration has no longer, and files in the same folder that make_tables does not write.
FORMER_TABLES, OTHER_FILES = ["auto.csv", "factorial.csv"], ["mine.csv"]


@pytest.fixture(scope="module")
def added_config(micro_config: dict[str, Any]) -> dict[str, Any]:
    return micro_config | {
        "benchmarks": {"arithmetic": micro_config["benchmarks"]["arithmetic"], "further": FURTHER},
        "ablations": {},
        "regimes": {"rft": RFT | {"steps": [2, 4]}},
    }


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
    benchmark = {"load_problems": 1, "check_leakage": 1, "train_rft": 2, "evaluate": POLICIES}
    assert planned == benchmark | SUMMARIES
    assert project.planned() == {}


def test_former_tables_go_to_the_trash(project: Project) -> None:
    tables = {path.name for path in (project.results / "tables").iterdir()}
    assert tables & {*FORMER_TABLES, *OTHER_FILES} == {*OTHER_FILES}
    assert sorted(path.name for path in project.results.glob(".trash/*/tables/*")) == sorted(FORMER_TABLES)


# ----------------------------------------------------------------------------------------------------------- selection


@pytest.fixture
def selection(project: Project) -> pd.DataFrame:
    return pd.read_csv(project.results / "tables/selection.csv")


def test_a_benchmark_selects_a_k_of_each_run(selection: pd.DataFrame) -> None:
    assert list(selection["policy"]) == ["dpo", "rft"]
    assert list(selection["n_checkpoints"]) == [3, 2]
    assert set(selection["benchmark"]) == {"arithmetic"}


def test_a_selected_k_has_its_accuracies_on_both_benchmarks(project: Project, selection: pd.DataFrame) -> None:
    for row in selection.itertuples():
        group_size = row.group_size if row.K else 0
        folder = project.results / f"micro/seed0/{row.policy}/g{group_size}/k{row.K}/eval"
        selecting = pd.read_parquet(folder / "further.parquet")
        other = pd.read_parquet(folder / "arithmetic.parquet")
        assert row.selected_accuracy == pytest.approx(selecting["reward"].mean(), rel=1e-5)
        assert row.accuracy == pytest.approx(other["reward"].mean(), rel=1e-5)


def test_the_benchmark_that_selects_has_accuracies_and_no_tests(project: Project) -> None:
    main = pd.read_csv(project.results / "tables/main.csv").query("benchmark == 'further'")
    comparisons = pd.read_csv(project.results / "tables/comparisons.csv")
    assert len(main) > 0
    assert main["at_most"].isna().all()
    assert "further" not in set(comparisons["benchmark"])
