"""Results hold no secret, and no shell interprets a name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from g2d.checks.load import load
from g2d.checks.requirements import require_files
from g2d.settings import ConfigError
from tests.configs import MINIMAL
from tests.workflow.conftest import SECRET, Project


def test_a_token_in_the_environment_is_in_no_file(micro_grid: Project) -> None:
    """The whole grid ran with it: results, logs, attempts, report, and Snakemake's own records."""
    assert (micro_grid.results / "report/index.html").is_file()
    assert (micro_grid.root / ".snakemake").is_dir()
    for file in micro_grid.root.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    "name", ["a b", "$(touch pwned)", "`id`", "a;b", "../up", "a/b", "-n", ".hidden", "", 'a"b', "{k}"]
)
@pytest.mark.parametrize("section", ["models", "benchmarks", "ablations"])
def test_names_that_a_shell_or_a_path_could_misread_are_refused(section: str, name: str) -> None:
    content = {"models": {"source": "embedded"}, "benchmarks": MINIMAL["pool"], "ablations": {"steps": [150]}}
    with pytest.raises(ConfigError, match=section):
        load(MINIMAL | {section: {name: content[section]}})


def test_a_brace_in_a_path_is_refused() -> None:
    config = load(MINIMAL | {"pool": {"source": "local", "path": "{k}.jsonl"}})
    with pytest.raises(ConfigError, match=r"pool\.path: {k}\.jsonl has a brace.*: rename it"):
        require_files(config)


def test_any_other_local_path_works_and_none_is_run(project: Project, micro_config: dict[str, Any]) -> None:
    name = 'it\'s a "b" $(touch pwned) `touch pwned`; k.jsonl'
    (project.root / name).write_text(json.dumps({"problem": "Compute $1 + 1$.", "answer": "2"}) + "\n")
    calibration = micro_config["calibration"] | {"levels": "auto"}  # the file has none
    pool = {"pool": {"source": "local", "path": name}, "training_set": {"n": 1}}
    project.configure(micro_config | pool | {"calibration": calibration})
    project.build("results/problems/pool.jsonl")
    assert json.loads((project.results / "problems/pool.jsonl").read_text())["source"] == f"local:{name}"
    assert not (project.root / "pwned").exists()
