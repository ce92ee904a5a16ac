"""`g2d compare` on folders that are not finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from g2d.cli import main
from g2d.experiment import grid
from g2d.experiment.config import read

CONFIG = read(Path(__file__).parents[1] / "config/config.yaml")


def test_everything_that_is_missing_is_listed_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        CONFIG.save(folder / "config.yaml")
    assert main(["compare", *map(str, folders)]) == 1
    *lines, verdict = capsys.readouterr().out.splitlines()
    policies = grid.policies(CONFIG)
    expected = ["provenance.json", *(f"problems/{name}.jsonl" for name in CONFIG.problem_sources)]
    expected += [f"{key.folder}/policy.json" for key in policies]
    expected += [f"{key.folder}/rollouts.parquet" for key in grid.harvests(CONFIG)]
    expected += [f"{key.folder}/eval/{benchmark}.parquet" for key in policies for benchmark in CONFIG.benchmarks]
    missing = {line.split(": ")[1].removesuffix(" is missing") for line in lines}
    assert missing == {str(folder / name) for folder in folders for name in expected}
    assert verdict.startswith(f"incomplete: {len(lines)} files are missing")


def test_both_folders_without_a_configuration_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert capsys.readouterr().err.startswith(f"g2d compare: {tmp_path / 'a'} and {tmp_path / 'b'}: no config.yaml")
