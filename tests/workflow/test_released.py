"""Results of a released version stay valid: with its configurations, no job has other parameters today.

A parameter that differs makes every finished result of its rule stale, GPU work included. If a test here fails,
either a new key has no neutral value (`g2d.settings.key`), or the change is intended and belongs into the changelog.
`record_released.py` made `released/{version}` with that version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.conftest import Project

HERE = Path(__file__).parent
RELEASED = sorted((HERE / "released").glob("*/*.params.json"))

SECTION = '    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)\n'
NEUTRAL = '    new: int | None = Field(None, json_schema_extra={"neutral": None})\n'
# Edit that adds a key to every section.
NEW_KEY = ("src/g2d/settings/__init__.py", SECTION, SECTION + NEUTRAL)


def planned_params(project: Project, recorded: Path) -> dict[str, Any]:
    """The parameters today, of the rules in a recording."""
    config = recorded.with_name(recorded.name.replace(".params.json", ".yaml"))
    printed = project.script(HERE / "planned_params.py", "--configfile", str(config))
    planned = json.loads(printed[printed.index("{\n") :])
    return {rule: planned[rule] for rule in json.loads(recorded.read_text())}


@pytest.mark.parametrize("recorded", RELEASED, ids=lambda file: f"{file.parent.name}-{file.stem.split('.')[0]}")
def test_no_job_of_a_released_version_has_other_parameters(project: Project, recorded: Path) -> None:
    assert planned_params(project, recorded) == json.loads(recorded.read_text())


def test_a_new_key_with_a_neutral_value_changes_no_job(project: Project) -> None:
    recorded = HERE / "released/0.3.0/config.params.json"
    with project.edited(*NEW_KEY):
        assert planned_params(project, recorded) == json.loads(recorded.read_text())
