"""A release names one version everywhere; GitHub runs official actions and targets of the Makefile."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import g2d

REPOSITORY = Path(__file__).parents[1]


def test_everything_says_the_same_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert g2d.__version__ == project["version"] == citation["version"]
    sections = re.findall(r"^## (.+)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)
    assert sections[:2] == ["Unreleased", f"{g2d.__version__} ({citation['date-released']})"]


def test_snakemake_would_start_each_command_of_the_readme() -> None:
    commands = re.findall(r"`(snakemake [^`]+)`", (REPOSITORY / "README.md").read_text())
    assert commands
    assert [command for command in commands if not re.search(" (-n|--cores|--profile) ", command)] == []


def test_workflows_of_github_use_official_actions_and_targets_that_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.M))
    files = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
    assert files
    for file in files:
        steps = [step for job in yaml.safe_load(file.read_text())["jobs"].values() for step in job["steps"]]
        used = [step["uses"] for step in steps if "uses" in step]
        assert [action for action in used if not re.fullmatch(r"actions/[\w-]+@v\d+", action)] == []
        made = [target for step in steps for target in re.findall(r"^make ([\w-]+)", step.get("run", ""), re.M)]
        assert set(made) <= targets
        assert made
