"""`g2d.open` on an unfinished grid; tests/workflow/test_grid.py opens a finished one."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import yaml

import g2d
from g2d.grid.runs import Policy
from g2d.policies.record import PolicyRecord, write_policy
from g2d.rollouts.rollout import to_frame
from g2d.tables.results import Results
from tests.configs import SMALL
from tests.frames import rollout


@pytest.fixture
def evaluated(tmp_path: Path) -> Results:
    """Return a folder with the record and the evaluation of every policy."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SMALL))
    results = g2d.open(tmp_path)
    for policy in results.grid.policies:
        write_policy(tmp_path / policy.folder / "policy.json", record_of(policy))
        answers = results.path(f"results/{policy.folder}/eval/easy.parquet")
        answers.parent.mkdir()
        to_frame([rollout("p", 0, "correct")]).to_parquet(answers)
    return results


def record_of(policy: Policy) -> PolicyRecord:
    return PolicyRecord(policy.folder, policy.model, policy.run_name, "base", k=policy.k)


def test_a_frame_of_a_finished_grid_has_no_warning(evaluated: Results) -> None:
    with warnings.catch_warnings(action="error"):
        assert len(evaluated.evaluations) == len(evaluated.grid.policies)
        evaluated.build("decomposition")


def test_a_frame_of_an_unfinished_grid_names_the_missing_files(evaluated: Results) -> None:
    missing = evaluated.folder / evaluated.grid.policies[-1].folder / "eval/easy.parquet"
    missing.unlink()
    with pytest.warns(UserWarning, match=f"^evaluations is computed without {missing}: "):
        assert len(evaluated.evaluations) == len(evaluated.grid.policies) - 1
    with pytest.warns(UserWarning, match=f"^decomposition is computed without {missing}: ") as caught:
        evaluated.build("decomposition")
    assert caught[0].filename == __file__
