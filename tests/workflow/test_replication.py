"""`g2d compare --files`: equal folders are the same, chance is called chance, and what matters is found."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from g2d.cli import main
from g2d.report.replication import compare_results, verdict
from tests.workflow.conftest import Project

EVALUATION = "micro/seed0/dpo/g2/k4/eval/arithmetic.parquet"
HARVEST = "micro/seed0/harvest/g2/k2/rollouts.parquet"
ADAPTER = "micro/seed0/dpo/g2/k2/adapter/adapter_model.safetensors"


def flipped(content: bytes) -> bytes:
    """Flip a bit of the last byte."""
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.fixture
def copy(micro_grid: Project, tmp_path: Path) -> Path:
    """Results that a test may change, without the digests of their files."""
    return Path(shutil.copytree(micro_grid.results, tmp_path / "results", ignore=shutil.ignore_patterns("digests")))


def set_rewards(file: Path, n: int) -> None:
    """Turn the verdicts of the first n wrong answers into right ones."""
    frame = pd.read_parquet(file)
    wrong = frame.index[frame.reward == 0][:n]
    frame.loc[wrong, "reward"] = 1.0
    frame.to_parquet(file, index=False)


def test_equal_results_are_the_same(micro_grid: Project, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(micro_grid.results), str(copy), "--files"]) == 0
    assert capsys.readouterr().out == "the same\n"


def test_a_few_other_answers_are_chance_and_many_are_not(micro_grid: Project, copy: Path) -> None:
    set_rewards(copy / EVALUATION, 2)
    [few] = compare_results(micro_grid.results, copy)
    assert (few.kind, few.name, few.weight) == ("evaluation", EVALUATION.removesuffix(".parquet"), "noise")
    assert "2 questions differ, p = 1 (Holm)" in few.detail
    set_rewards(copy / EVALUATION, 20)
    [many] = compare_results(micro_grid.results, copy)
    assert many.weight == "matters"
    assert verdict([many]).startswith("different")


def test_rollouts_weights_and_missing_files_are_distinguished(micro_grid: Project, copy: Path) -> None:
    frame = pd.read_parquet(copy / HARVEST)
    frame.loc[frame.index[:120], "completion_text"] += " "
    frame.to_parquet(copy / HARVEST, index=False)
    (copy / ADAPTER).write_bytes(flipped((copy / ADAPTER).read_bytes()))
    (copy / EVALUATION).unlink()
    details = {(d.kind, d.weight): d.detail for d in compare_results(micro_grid.results, copy)}
    assert details[("harvest", "expected")] == "75.0% of the rollouts are identical"
    assert details[("policy", "expected")] == "other weights"
    assert details[("evaluation", "missing")].endswith("arithmetic.parquet is missing")


@pytest.mark.parametrize("file", [EVALUATION, HARVEST, ADAPTER, "micro/base/model/model.safetensors"])
def test_a_changed_result_is_refused(micro_grid: Project, copy: Path, file: str) -> None:
    shutil.copytree(micro_grid.results / "digests", copy / "digests")
    (copy / file).write_bytes(flipped((copy / file).read_bytes()))
    for other in (micro_grid.results, copy):
        with pytest.raises(ValueError, match=f"{re.escape(str(copy / file))}: not as its job has left it: delete it"):
            compare_results(other, copy)
    (copy / file).unlink()
    [missing] = compare_results(micro_grid.results, copy)
    assert missing.detail == f"{copy / file} is missing"


def test_another_experiment_is_named_by_its_keys(
    micro_grid: Project, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["dpo"]["beta"] = 0.2
    config["engine"]["shards"] = {"harvest": 4}  # has no influence on results
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["compare", str(micro_grid.results), str(copy), "--files", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    [difference] = answer["differences"]
    assert (difference["name"], difference["detail"], difference["weight"]) == ("dpo.beta", "0.1 | 0.2", "asked")


def test_a_folder_that_is_no_result_is_refused(
    micro_grid: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(micro_grid.results), str(tmp_path), "--files"]) == 2
    assert f"{tmp_path}: no config.yaml in it" in capsys.readouterr().err
