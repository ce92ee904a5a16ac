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
    "split": "test",
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
    benchmark = {"load_problems": 1, "check_leakage": 1, "train_rft": 2, "evaluate": POLICIES + 2}
    assert planned == benchmark | SUMMARIES
    assert project.planned() == {}


def test_former_tables_go_to_the_trash(project: Project) -> None:
    tables = {path.name for path in (project.results / "tables").iterdir()}
    assert tables & {*FORMER_TABLES, *OTHER_FILES} == {*OTHER_FILES}
    assert sorted(path.name for path in project.results.glob(".trash/*/tables/*")) == sorted(FORMER_TABLES)


# ----------------------------------------------------------------------------------------------------------- selection


def test_a_benchmark_selects_the_k_of_each_run(project: Project) -> None:
    selection = pd.read_csv(project.results / "tables/selection.csv")
    assert list(selection.policy) == ["dpo", "rft"]
    assert set(selection.benchmark) == {"arithmetic"}
    assert list(selection.n_checkpoints) == [3, 2]
    for row in selection.itertuples():
        folder = project.results / f"micro/seed0/{row.policy}/g{row.group_size if row.K else 0}/k{row.K}/eval"
        answers = {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("further", "arithmetic")}
        assert row.selected_accuracy == pytest.approx(answers["further"].reward.mean(), rel=1e-5)
        assert row.accuracy == pytest.approx(answers["arithmetic"].reward.mean(), rel=1e-5)
    tables = {name: pd.read_csv(project.results / f"tables/{name}.csv") for name in ("main", "comparisons")}
    assert "further" not in set(tables["comparisons"].benchmark)
    assert "further" in set(tables["main"].benchmark)
    assert tables["main"].query("benchmark == 'further'").margin_shown.isna().all()
