"""`g2d compare --files`: equal folders are the same, chance is called chance, and what matters is found."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from g2d.cli import main
from g2d.jobs.files import sha256
from g2d.report.replication import compare_results, verdict
from tests.workflow.conftest import Project

EVALUATION = "micro/seed0/dpo/g2/k4/eval/arithmetic.parquet"


@pytest.fixture
def copy(micro_grid: Project, tmp_path: Path) -> Path:
    """Results that a test may change."""
    return Path(shutil.copytree(micro_grid.results, tmp_path / "results"))


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


def test_rollouts_weights_and_missing_files_are_told_apart(micro_grid: Project, copy: Path) -> None:
    harvest = copy / "micro/seed0/harvest/g2/k2/rollouts.parquet"
    frame = pd.read_parquet(harvest)
    frame.loc[frame.index[:120], "completion_text"] += " "
    frame.to_parquet(harvest, index=False)
    policy = copy / "micro/seed0/dpo/g2/k2/policy.json"
    adapter = policy.with_name("adapter") / "adapter_model.safetensors"
    adapter.write_bytes(flipped(adapter.read_bytes()))  # of another training
    policy.write_text(json.dumps(json.loads(policy.read_text()) | {"weights_sha256": sha256(adapter)}))
    (copy / EVALUATION).unlink()
    found = {(d.kind, d.weight): d.detail for d in compare_results(micro_grid.results, copy)}
    assert found[("harvest", "expected")] == "75.0% of the rollouts are identical"
    assert found[("policy", "expected")] == "other weights"
    assert found[("evaluation", "missing")].endswith("arithmetic.parquet is missing")


def flipped(content: bytes) -> bytes:
    """With one bit of the last byte turned over."""
    return content[:-1] + bytes([content[-1] ^ 1])


HARVEST = "micro/seed0/harvest/g2/k2/rollouts.parquet"
ADAPTER = "micro/seed0/dpo/g2/k2/adapter/adapter_model.safetensors"
NO_LONGER = "so it was changed after it was made; delete it to have it made again"


@pytest.mark.parametrize("file", [EVALUATION, HARVEST])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows.assign(reward=rows["reward"] / 2), "a reward of 0.5"),
        (lambda rows: rows.assign(reward=float("nan")), "a reward of nan"),
        (lambda rows: rows.assign(reward="right"), "its rewards are no numbers"),
        (lambda rows: pd.concat([rows, rows]), "is there twice"),
        (lambda rows: rows.assign(reward=float("inf"), reward_status="judged"), "a reward of inf"),
        (lambda rows: rows.assign(reward=float("nan"), reward_status="judged"), "a reward of nan"),
    ],
)
def test_damaged_rows_are_refused_even_where_both_folders_have_them(
    micro_grid: Project, copy: Path, file: str, change: Callable[[pd.DataFrame], pd.DataFrame], reason: str
) -> None:
    change(pd.read_parquet(copy / file)).to_parquet(copy / file, index=False)
    for other in (micro_grid.results, copy):
        with pytest.raises(ValueError, match=f"{re.escape(str(copy / file))}: .*{reason}, {NO_LONGER}"):
            compare_results(copy, other)


def test_scalar_rewards_of_a_reward_are_legal(copy: Path) -> None:
    rows = pd.read_parquet(copy / HARVEST)
    rewards = [-2.5 if i else float("nan") for i in range(len(rows))]
    rows.assign(reward=rewards, reward_status=["judged" if i else "late" for i in range(len(rows))]).to_parquet(
        copy / HARVEST, index=False
    )
    assert verdict(compare_results(copy, copy)) == "the same"


@pytest.mark.parametrize("file", [ADAPTER, "micro/base/model/model.safetensors"])
def test_a_flipped_bit_in_weights_is_refused(micro_grid: Project, copy: Path, file: str) -> None:
    (copy / file).write_bytes(flipped((copy / file).read_bytes()))
    with pytest.raises(ValueError, match=f"{file}: not the weights that policy.json names"):
        compare_results(micro_grid.results, copy)
    (copy / file).unlink()
    [missing] = compare_results(micro_grid.results, copy)
    assert missing.detail == f"{copy / file} is missing"


def test_another_experiment_is_named_by_its_keys(
    micro_grid: Project, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["dpo"]["beta"] = 0.2
    config["engine"]["shards"] = {"harvest": 4}  # says how, not what
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
