"""No job reads a file whose content differs from the recorded digest, whatever its time stamp."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from tests.models import tiny_policy
from tests.workflow.changed_files import BEGAN, changed
from tests.workflow.conftest import Project

CHANGED_FILES = Path(__file__).with_name("changed_files.py")
SEED = "results/micro/seed0"
# Results that no job reads. A new kind of file belongs here unless a job reads it and refuses a changed one.
FOR_PEOPLE = {
    "results/micro/seed0/*/g*/k*/adapter/README.md",
    "results/report/index.html",
}


def test_every_job_refuses_a_changed_byte_in_every_kind_of_file(own_micro_grid: Project) -> None:
    begun = json.loads(own_micro_grid.script(CHANGED_FILES).splitlines()[-1])
    assert set(begun["unread"]) == FOR_PEOPLE
    assert {rule for _, rule, _, _ in begun["replies"]} >= {"calibrate", "train_dpo", "make_tables", "build_report"}
    for _, _, file, reply in begun["replies"]:
        assert f"{file}: not the file that" in reply
    for reply in begun["unchanged"].values():
        assert BEGAN in reply


def test_the_command_of_a_refusal_makes_the_file_again(own_micro_grid: Project) -> None:
    grid = own_micro_grid
    pairs = grid.root / f"{SEED}/harvest/g2/k2/pairs.jsonl"
    before = pairs.read_bytes()
    made = grid.root / f"{SEED}/dpo/g2/k2/policy.json"
    expected = made.read_bytes()
    made.unlink()
    target = ["--quiet", "rules", "--", str(made.relative_to(grid.root))]
    with changed(pairs):
        printed = grid.refused("--cores", "1", *target)
        [refusal] = set(re.findall(r"^train_dpo: .*$", printed, re.M))  # also the end of a failed run
        assert "pairs.jsonl: not the file that build_pairs/micro/seed0/g2/k2 recorded" in refusal
        command = refusal.partition("the same snakemake command with ")[2].split()
        grid.build(*command, *target)
        assert pairs.read_bytes() == before
    assert made.read_bytes() == expected


def test_files_without_a_recorded_digest_are_read(own_micro_grid: Project) -> None:
    """The log counts the files that were not compared."""
    grid = own_micro_grid
    shutil.rmtree(grid.results / "digests")
    assert grid.planned() == {}
    evaluation = f"{SEED}/dpo/g2/k2/eval/arithmetic.parquet"
    (grid.root / evaluation).unlink()
    grid.build("--quiet", "rules", "--", evaluation)
    log = grid.results / "logs/evaluate/micro/seed0/dpo/g2/k2.log"
    assert "files that this job reads have no recorded digest" in log.read_text()


def test_a_local_model_that_changes_while_a_grid_runs_is_refused(tmp_path: Path, micro_config: dict[str, Any]) -> None:
    """The next plan has the jobs that read it. Jobs have a copy of its tokenizer and links to its weights."""
    config = micro_config | {"models": {"mine": {"source": "local", "path": "model"}}, "ablations": {}}
    project = Project.create(tmp_path / "g2d", config)
    shutil.copytree(tiny_policy().base, project.root / "model")
    evaluation = "results/mine/base/eval/word-problems.parquet"
    target = ["--quiet", "rules", "--", evaluation]
    project.build(*target)
    (project.root / evaluation).unlink()
    [record] = project.root.glob("results/mine/base/policy.json")
    with changed(project.root / "model/tokenizer_config.json"):
        assert "pretrained_model" in project.planned("--", evaluation)
    with changed(project.root / "model/model.safetensors"):
        # Without the rule that reads the model, Snakemake plans as it did before the change.
        refusal = project.refused("--cores", "1", "--allowed-rules", "evaluate", *target)
        assert "evaluate: results/mine/base/model/model.safetensors: not the file that pretrained_model/mine" in refusal
        assert "pretrained_model" in project.planned("--", evaluation)
    assert record.exists()
    project.build(*target)
