"""Results of a released version stay valid: with its configurations, no job has other parameters today.

A parameter that differs makes every finished result of its rule stale, GPU work included. If a test here fails,
either a new key has no neutral value (`g2d.settings.key`), or the change is intended and belongs into the changelog.
`released/{version}` holds configurations of that version and what `planned_params.py` printed for them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.conftest import Project

HERE = Path(__file__).parent
RELEASED = sorted((HERE / "released").glob("*/*.params.json"))

# Intended changes, by configuration and rule; their reasons are in the changelog.
MEANT = {
    "config": {"train_grpo": ", 'rollouts': 'by g2d.rollouts'"},
    "paper": {"train_grpo": ", 'ratios': 'without dropout'"},
    "micro": {"train_grpo": ", 'rollouts': 'by g2d.rollouts'"},
}

SECTION = '    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)\n'
NEUTRAL = '    new: int | None = Field(None, json_schema_extra={"neutral": None})\n'
# Edit that adds a key to every section.
NEW_KEY = ("src/g2d/settings/__init__.py", SECTION, SECTION + NEUTRAL)


def planned_params(project: Project, config: Path) -> dict[str, Any]:
    printed = project.script(HERE / "planned_params.py", "--configfile", str(config))
    return json.loads(printed[printed.index("{\n") :])


@pytest.mark.parametrize("recorded", RELEASED, ids=lambda file: f"{file.parent.name}-{file.stem.split('.')[0]}")
def test_no_job_of_a_released_version_has_other_parameters(project: Project, recorded: Path) -> None:
    config = recorded.with_name(recorded.name.replace(".params.json", ".yaml"))
    assert without_what_is_meant(planned_params(project, config), config) == json.loads(recorded.read_text())


def without_what_is_meant(planned: dict[str, Any], config: Path) -> dict[str, Any]:
    for rule, more in MEANT.get(config.stem, {}).items():
        for jobs in planned[rule]:
            assert more in jobs["settings"]
            jobs["settings"] = jobs["settings"].replace(more, "")
    return planned


def test_a_new_key_with_a_neutral_value_changes_no_job(project: Project) -> None:
    config = HERE / "released/0.1.0/micro.yaml"
    with project.edited(*NEW_KEY):
        planned = without_what_is_meant(planned_params(project, config), config)
    assert planned == json.loads(config.with_suffix(".params.json").read_text())
