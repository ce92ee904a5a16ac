"""`benchmarks/wheelhouse.py`: what a machine without a network lacks, from the metadata of what is installed here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

INSTALLED = [f"{own.name}=={own.version}" for own in distributions()]


def lacking(*arguments: str) -> set[str]:
    command = [sys.executable, "benchmarks/wheelhouse.py", "wheels", "--python", "3.12", "--list", *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def names(requirements: Iterable[str]) -> set[str]:
    return {requirement.partition("==")[0] for requirement in requirements}


def test_torch_and_transformers_are_assumed_with_their_requirements() -> None:
    needed = names(lacking())
    assert {"trl", "peft", "datasets", "math-verify", "snakemake", "pandas"} <= needed
    assert {"pydantic", "pydantic-core", "annotated-types", "typing-inspection"} <= needed  # torch does not need them
    assert not {"torch", "transformers", "numpy", "jinja2", "g2d", "vl-convert-python", "pulp", "pytest"} & needed
    pins = Path("envs/constraints.txt").read_text().lower().replace("_", "-").splitlines()
    assert lacking() <= {line.replace(".", "-", line.partition("==")[0].count(".")) for line in pins}


def test_missing_and_old_packages_of_a_list_are_collected(tmp_path: Path) -> None:
    has = tmp_path / "has.txt"
    for installed in (INSTALLED, names(INSTALLED)):
        has.write_text("\n".join(installed))
        assert lacking("--has", str(has)) == set()
    older = re.sub(r"(?im)^(trl|accelerate|pandas)==.*$", "", "\n".join(INSTALLED))
    has.write_text(f"{older}\naccelerate==0.10.0\npandas==2.2.0")
    needed = lacking("--has", str(has))
    assert names(needed) == {"trl", "accelerate"}  # trl and peft need newer ones; any pandas 2 will do
