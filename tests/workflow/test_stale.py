"""Files that were deleted, copied, edited or swapped after they were made: what runs again, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.models import tiny_policy
from tests.open_ended import JUDGE
from tests.rewards.models import reward_model
from tests.workflow.conftest import Project
from tests.workflow.micro import SUMMARIES as TABLES
from tests.workflow.test_reruns import another_benchmark

Jobs = dict[str, int]
SEED = "results/micro/seed0"

PAIRED: Jobs = {"build_pairs": 1, "train_dpo": 3} | TABLES | {"evaluate": 3}
# Files that a plain `snakemake` makes again after they were deleted from a finished grid, and with which jobs. Others
# are made again if something asks for them.
ASKED_FOR: dict[str, Jobs] = {
    "results/tables/main.csv": TABLES,
    "results/report/index.html": {"build_report": 1, "all": 1},
}
BEHIND = (
    *("results/micro/base/policy.json", f"{SEED}/grpo/g2/k2/checkpoint", f"{SEED}/harvest/g2/k2/rollouts.parquet"),
    *(f"{SEED}/harvest/g2/k2/pairs.jsonl", f"{SEED}/dpo/g2/k2/eval/arithmetic.parquet"),
)


@contextmanager
def without(project: Project, file: str) -> Iterator[None]:
    hidden = project.root.parent / "hidden"
    (project.root / file).rename(hidden)
    try:
        yield
    finally:
        hidden.rename(project.root / file)


@pytest.mark.parametrize("file", ASKED_FOR)
def test_a_deleted_file_that_a_target_asks_for_is_made_again(micro_grid: Project, file: str) -> None:
    with without(micro_grid, file):
        assert micro_grid.planned() == ASKED_FOR[file]


@pytest.mark.parametrize("file", BEHIND)
def test_a_deleted_file_behind_results_is_made_again_if_it_is_asked_for(micro_grid: Project, file: str) -> None:
    with without(micro_grid, file):
        assert micro_grid.planned() == {}
        assert sum(micro_grid.planned(file).values()) == 1


def test_a_target_asks_for_the_files_that_it_names(micro_grid: Project) -> None:
    with without(micro_grid, f"{SEED}/harvest/g2/k2/pairs.jsonl"):
        assert micro_grid.planned("k0") == {}
        assert micro_grid.planned("harvest") == {"build_pairs": 1, "harvest": 1}
        assert "build_pairs" in micro_grid.planned("k2")


@pytest.fixture
def grid(own_micro_grid: Project) -> Project:
    return own_micro_grid


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("grpo/g2/k2/policy.json", "{", "delete it to have it made again"),
        ("grpo/g2/k2/policy.json", '{"quantised": true}', "a newer version made it, so use that one"),
        ("grpo/g2/k2/policy.json", None, "Is a directory"),  # unreadable, also for root
    ],
)
def test_a_file_that_the_plan_reads_is_refused_and_its_job_not_left_out(
    micro_grid: Project, file: str, content: str | None, message: str
) -> None:
    with without(micro_grid, f"{SEED}/{file}"):
        damaged = micro_grid.root / SEED / file
        damaged.mkdir() if content is None else damaged.write_text(content)
        try:
            done = micro_grid.snakemake("-n")
        finally:
            damaged.rmdir() if content is None else damaged.unlink()
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if f"{SEED}/{file}" in line and message in line], done.stdout


def test_a_deleted_file_that_is_made_again_with_equal_content_runs_nothing_else(grid: Project) -> None:
    pairs = grid.root / f"{SEED}/harvest/g2/k2/pairs.jsonl"
    before = pairs.read_bytes()
    pairs.unlink()
    grid.build("--quiet", "rules", "--", "harvest")
    assert pairs.read_bytes() == before
    assert grid.planned() == {}


# --------------------------------------------------------------------------------------------------------- time stamps

LARGE = ("--max-checksum-file-size", "0")  # Snakemake compares no content
ROLLOUTS = f"{SEED}/harvest/g2/k2/rollouts.parquet"
KEPT = r"^\d+ finished jobs stay: files look newer"


def with_other_times(grid: Project) -> None:
    """Make children older than their parents, and one stamp that of a clock that was ahead."""
    files = sorted(grid.results.rglob("*"), key=lambda path: path.lstat().st_mtime, reverse=True)
    newest = files[0].lstat().st_mtime
    for i, path in enumerate(files):
        os.utime(path, (newest, newest - len(files) + i))
    ahead = newest + 86_400
    os.utime(grid.root / ROLLOUTS, (ahead, ahead))


def test_results_with_other_time_stamps_and_the_same_content_run_nothing(grid: Project) -> None:
    with_other_times(grid)
    plan = grid.snakemake("-n", *LARGE).stdout
    assert re.search(KEPT, plan, re.M), plan
    assert "Nothing to be done" in plan
    again = grid.snakemake("-n", *LARGE).stdout
    assert not re.search(KEPT, again, re.M), again
    assert "Nothing to be done" in again


def test_a_folder_copied_without_time_stamps_runs_nothing(grid: Project, tmp_path: Path) -> None:
    """`cp -r`, with large files."""
    with_other_times(grid)
    copied = Project(Path(shutil.copytree(grid.root, tmp_path / "copy", copy_function=shutil.copyfile)))
    done = copied.build(*LARGE)
    assert "Nothing to be done" in done, done
    assert copied.g2d("check-results").returncode == 0


def test_touched_results_run_nothing(grid: Project) -> None:
    for file in (ROLLOUTS, "results/micro/base/model/.snakemake_timestamp", f"{SEED}/grpo/g2/k2/policy.json"):
        (grid.root / file).touch()
    assert grid.planned(*LARGE) == {}


def test_a_file_that_differs_is_named_and_what_was_made_from_it_runs(grid: Project) -> None:
    with_other_times(grid)
    changed = grid.root / ROLLOUTS
    changed.write_bytes(changed.read_bytes()[:-1])
    done = grid.g2d("check-results")
    assert done.returncode == 1
    assert f"{ROLLOUTS}: not what its job wrote" in done.stdout
    plan = grid.snakemake("-n", *LARGE).stdout
    assert f"have changed since they were read, or their digest is not recorded (first: {ROLLOUTS})" in plan
    assert grid.planned(*LARGE) == PAIRED


def test_a_result_that_its_job_made_again_with_other_content_is_read_again(grid: Project) -> None:
    """Its own digest is recorded anew; the jobs that read it have recorded the old one."""
    with_other_times(grid)
    rollouts = grid.root / ROLLOUTS
    before = rollouts.read_bytes()
    rollouts.write_bytes(before[:-1])
    recorded = grid.root / "results/digests/harvest_rollouts/micro/seed0/g2/k2.sha256"
    old = recorded.read_text()
    recorded.write_text(old.replace(sha256_of(before), sha256_of(before[:-1])))
    assert recorded.read_text() != old
    assert grid.planned(*LARGE) == PAIRED


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_results_without_recorded_digests_are_compared_by_time_stamps(grid: Project) -> None:
    shutil.rmtree(grid.results / "digests")
    assert grid.planned(*LARGE) == {}
    (grid.root / ROLLOUTS).touch()
    assert grid.planned(*LARGE) == PAIRED


def test_time_stamps_stay_while_another_snakemake_runs(grid: Project) -> None:
    with_other_times(grid)
    lock = grid.root / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(ROLLOUTS)
    assert not re.search(KEPT, grid.snakemake("-n", *LARGE).stdout, re.M)


# ------------------------------------------------------------------------------------------------------- configurations


def test_several_additions_are_planned_together_and_removing_them_plans_no_job(
    micro_grid: Project, micro_config: dict[str, Any]
) -> None:
    """A K, a seed and a benchmark."""
    config = copy.deepcopy(micro_config) | {"seeds": [1, 0]}
    another_benchmark(config)
    config["warmup"]["steps"] = [0, 1, 2, 4]
    try:
        micro_grid.configure(config)
        planned = micro_grid.planned()
        assert "files are missing" not in micro_grid.snakemake("-n").stdout  # they were never made
    finally:
        micro_grid.configure(micro_config)
    # K=1 of the first seed has one policy that is evaluated, the second seed nine; nine old ones answer
    # one more benchmark.
    new = {"train_grpo": 1 + 4, "harvest_rollouts": 1 + 4, "build_pairs": 1 + 4, "train_dpo": 1 + 7}
    assert planned == {"load_problems": 1, "check_leakage": 1} | new | {"evaluate": 9 + 1 + 9} | TABLES
    assert micro_grid.planned() == {}


# --------------------------------------------------------------------------------------------------------- local model


@pytest.fixture(scope="module")
def local_model(tmp_path_factory: pytest.TempPathFactory, micro_config: dict[str, Any]) -> Project:
    """A project that has read local files: an M0 and problems."""
    root = tmp_path_factory.mktemp("local") / "g2d"
    config = copy.deepcopy(micro_config) | {
        "models": {"mine": {"source": "local", "path": "model"}},
        "pool": {"source": "local", "path": "pool.jsonl", "fields": {"level": "level"}},
        "training_set": {"n": 9},
        "benchmarks": {"own": {"source": "local", "path": "../own.jsonl"}},
        "rewards": {"polite": JUDGE},
        "open_ended": {
            "pool": {"source": "local", "path": "open-ended.jsonl"},
            "held_out": {"source": "local", "path": "held-out.jsonl"},
            "reward": "polite",
            "max_completion_length": 24,
        },
        "ablations": {},
    }
    project = Project.create(root, config)
    shutil.copytree(tiny_policy().base, root / "model")
    reward_model(root / "judge")
    rows = [json.dumps({"problem": f"{i} + 1 = ?", "answer": str(i + 1), "level": 1 + i % 3}) for i in range(9)]
    for name in ("pool", "../own", "open-ended", "held-out"):
        (root / f"{name}.jsonl").write_text("\n".join(rows).replace("?", f"? {name}") + "\n")
    project.build("--quiet", "rules", "--", RECORD, *READ)
    assert project.planned(RECORD, *READ) == {}
    return project


RECORD = "results/mine/base/policy.json"
READ = {  # result and the configured file it is made from
    "results/problems/pool.jsonl": "pool.jsonl",
    "results/problems/own.jsonl": "../own.jsonl",
    "results/problems/open-ended.jsonl": "open-ended.jsonl",
    "results/problems/open-ended-held-out.jsonl": "held-out.jsonl",
}
FILES = [*READ.values(), "model/model.safetensors"]
OLD = 10**18  # nanoseconds: in 2001


def lengthened(path: Path, content: bytes) -> bytes:
    """Return a longer file with the same meaning: blanks end the header of safetensors, an empty line the others."""
    if path.suffix != ".safetensors":
        return content + b"\n"
    length = int.from_bytes(content[:8], "little")
    header, weights = content[8 : 8 + length], content[8 + length :]
    return (length + 8).to_bytes(8, "little") + header + b" " * 8 + weights


def test_replaced_files_are_planned_whatever_their_time_stamps(local_model: Project) -> None:
    """By older files of another size (`mv`, `cp -p`, `rsync -t`), or by an edit that restores the mtime."""
    paths = [local_model.root / file for file in FILES]
    kept = [(path, path.read_bytes(), path.stat()) for path in paths]
    again = {"load_problems": 4, "pretrained_model": 1}
    for path, before, _ in kept:
        path.rename(path.with_suffix(".kept"))
        path.write_bytes(lengthened(path, before))
        os.utime(path, ns=(OLD, OLD))
    assert local_model.planned(RECORD, *READ) == again
    for path in paths:
        path.with_suffix(".kept").rename(path)
    assert local_model.planned(RECORD, *READ) == {}
    for path, before, times in kept:
        path.write_bytes(before[:-3] + b"," + before[-2:])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert local_model.planned(RECORD, *READ) == again
    plan = local_model.snakemake("-n", RECORD, *READ).stdout
    [changed] = re.findall(r"Jobs run again, because these files are not the ones that they read: (.*)", plan)
    assert sorted(changed.split(", ")) == sorted(FILES)
    for path, before, _ in kept:
        path.write_bytes(before)
    assert local_model.planned(RECORD, *READ, *LARGE) == {}


def test_equal_content_runs_nothing_however_large_and_new_it_is(local_model: Project, tmp_path: Path) -> None:
    """`cp -r` of the whole project without its time stamps, and `touch`."""
    for file in FILES:
        (local_model.root / file).touch()
    assert local_model.planned(RECORD, *READ, *LARGE) == {}
    shutil.copyfile(local_model.root / READ["results/problems/own.jsonl"], tmp_path / "own.jsonl")
    copied = Project(shutil.copytree(local_model.root, tmp_path / "g2d"))
    for file in FILES:
        path = copied.root / file
        path.write_bytes(path.read_bytes())  # another inode, now
    assert copied.planned(RECORD, *READ, *LARGE) == {}


def test_files_without_a_record_are_taken_as_they_are(local_model: Project) -> None:
    record = local_model.root / "results/digests/load_problems/pool.inputs"
    kept = record.read_bytes()
    record.unlink()
    pool = local_model.root / "pool.jsonl"
    before = pool.read_bytes()
    pool.write_bytes(before + b"\n")
    assert local_model.planned(RECORD, *READ, *LARGE) == {}
    record.write_bytes(kept)
    assert local_model.planned(RECORD, *READ, *LARGE) == {"load_problems": 1}
    pool.write_bytes(before)


def test_moved_files_run_nothing_unless_a_byte_has_changed(local_model: Project, tmp_path: Path) -> None:
    project = local_model.copied(tmp_path / "g2d")
    shutil.copyfile(local_model.root / "../own.jsonl", project.root / "../own.jsonl")
    before = (project.root / "config/config.yaml").read_text()
    (project.root / "elsewhere").mkdir()
    for name in ("model", "pool.jsonl"):
        (project.root / name).rename(project.root / "elsewhere" / name)
    moved = before.replace("path: model", "path: elsewhere/model").replace(
        "path: pool.jsonl", "path: elsewhere/pool.jsonl"
    )
    (project.root / "config/config.yaml").write_text(moved)
    assert project.planned(RECORD, *READ, *LARGE) == {}
    weights = project.root / "results/mine/base/model/model.safetensors"
    assert weights.read_bytes() == (project.root / "elsewhere/model/model.safetensors").read_bytes()
    pool = project.root / "elsewhere/pool.jsonl"
    pool.write_bytes(pool.read_bytes() + b"\n")
    assert project.planned(RECORD, *READ, *LARGE) == {"load_problems": 1}
    template = project.root / "elsewhere/model/chat_template.jinja"
    template.write_text(f"{template.read_text()} ")
    assert project.planned(RECORD, *READ, *LARGE) == {"load_problems": 1, "pretrained_model": 1}


def test_an_edited_local_model_is_planned_and_a_touched_one_is_not(local_model: Project) -> None:
    model = local_model.root / "model"
    for file in ("chat_template.jinja", "tokenizer.json", "config.json"):
        (model / file).touch()
    assert local_model.planned(RECORD) == {}
    added = model / "special_tokens_map.json"
    added.write_text("{}")
    assert local_model.planned(RECORD) == {"pretrained_model": 1}
    added.unlink()
    assert local_model.planned(RECORD) == {}
