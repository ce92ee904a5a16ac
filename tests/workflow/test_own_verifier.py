"""A verifier of the user's in a grid: it judges answers and trainings, and an edit runs both again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.workflow.conftest import Project

JUDGE = "def judge(problem, completion):\n    return len(completion) % 2 == 0\n"
ANSWERS, TRAINED = "results/micro/base/eval/arithmetic.parquet", "results/micro/seed0/grpo/g2/k2/rollouts.parquet"


def test_it_judges_answers_and_trainings_and_an_edit_runs_them_again(
    tmp_path: Path, micro_config: dict[str, Any]
) -> None:
    config = micro_config | {"verifier": {"source": "python", "file": "my_verifier.py"}}
    project = Project.create(tmp_path / "g2d", config)
    (project.root / "my_verifier.py").write_text(JUDGE)
    project.build("--quiet", "rules", "--", ANSWERS, TRAINED)
    for file in (ANSWERS, TRAINED):
        rows = pd.read_parquet(project.root / file).dropna(subset="completion_text")
        is_even = rows["completion_text"].str.len() % 2 == 0
        assert is_even.any()
        assert ((rows["verdict"] == "correct") == is_even).all()
        assert set(rows.loc[~is_even, "verdict"]) <= {"incorrect", "truncated"}
        assert rows["extracted_answer"].isna().all()
    assert project.planned(ANSWERS, TRAINED) == {}
    (project.root / "my_verifier.py").write_text(JUDGE + "# edited\n")
    again = project.planned(ANSWERS, TRAINED)
    assert again.keys() >= {"calibrate", "train_grpo", "evaluate"}
    assert not {"load_problems", "check_leakage"} & again.keys()


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> tuple[Path, str]:
    """Folder and output of a run whose verifier fails on all answers of M0."""
    config = micro_config | {"verifier": {"source": "python", "file": "my_verifier.py"}}
    project = Project.create(tmp_path_factory.mktemp("failing") / "g2d", config)
    (project.root / "my_verifier.py").write_text("def judge(problem, completion):\n    return problem.answer == '1'\n")
    done = project.snakemake("--cores", "2", "results/micro/calibration/rollouts.parquet")
    assert done.returncode != 0
    return project.root, done.stdout


def test_a_verifier_that_fails_on_the_first_answers_of_m0_ends_its_calibration(failed: tuple[Path, str]) -> None:
    assert "calibrate: my_verifier.py: judge failed on all of the first 20 completions (20 error)" in failed[1]
    assert "error: AttributeError: 'dict' object has no attribute 'answer': mend it" in failed[1]


def test_the_last_lines_of_a_failed_run_are_the_reason_and_the_log(failed: tuple[Path, str]) -> None:
    root, printed = failed
    reason, log = printed.splitlines()[-2:]
    assert reason.startswith("calibrate: my_verifier.py: judge failed")
    assert log == f"  details: {root}/results/logs/calibrate/micro.log"


def test_a_failed_run_prints_no_log_and_no_command_of_snakemake(failed: tuple[Path, str]) -> None:
    _, printed = failed
    assert "Traceback" not in printed
    assert "CalledProcessError" not in printed
    assert len(printed.partition("Calibrate the difficulty")[2].splitlines()) < 12
