"""`g2d verify-run` recomputes jobs of the finished micro grid bit for bit, and finds forged results."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pandas as pd
import pytest

from g2d.cli import main
from g2d.graph.job import Job
from g2d.jobs.files import read_json, sha256, write_json
from g2d.report.verify_run import Check, _costs, _others, draw, finished, verify
from tests.workflow import as_python, forked
from tests.workflow.conftest import Project

GRPO, HARVEST = "results/micro/seed0/grpo/g2/k4/policy.json", "results/micro/seed0/harvest/g2/k2/rollouts.parquet"
DPO = "micro/seed0/dpo/g2/k2"
MAIN, ANSWERS, ADAPTER = "tables/main.csv", f"{DPO}/eval/arithmetic.parquet", f"{DPO}/adapter/adapter_model.safetensors"


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork Snakemake and its jobs from processes that have made the imports."""
    monkeypatch.setattr(sys, "executable", forked.python())
    monkeypatch.setenv(as_python.DOOR_OF_SCRIPTS, as_python.HEAVY)


def jobs_of(results: Path) -> dict[str, Job]:
    """Return the finished jobs by their first output."""
    return {job.done[0]: job for job in finished(results)}


def stamps(results: Path) -> dict[str, tuple[int, ...]]:
    """Return identity, size and times of all results, and of what Snakemake has recorded about them."""
    files = [*results.rglob("*"), *(results.parent / ".snakemake/metadata").rglob("*")]
    stats = {str(file): file.stat() for file in files if file.name != "verification.json"}
    return {file: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in stats.items()}


@contextmanager
def forged(results: Path, *files: str) -> Iterator[None]:
    """Adapt time stamps and recorded digests to what a block changes."""
    before = {file: (sha256(results / file), (results / file).stat()) for file in files}
    yield
    for listed in (results / "digests").rglob("*.sha256"):
        text, time = listed.read_text(), listed.stat()
        for file, (digest, _) in before.items():
            line = f"{digest}  results/{file}\n"
            text = text.replace(line, line.replace(digest, sha256(results / file)))
        listed.write_text(text)
        os.utime(listed, ns=(time.st_atime_ns, time.st_mtime_ns))
    for file, (_, time) in before.items():
        os.utime(results / file, ns=(time.st_atime_ns, time.st_mtime_ns))


def flip_answer(results: Path) -> None:
    with forged(results, ANSWERS):
        frame = pd.read_parquet(results / ANSWERS)
        first = frame.index[frame.verdict != "correct"][0]
        frame.loc[first, ["verdict", "reward"]] = ["correct", 1.0]
        frame.to_parquet(results / ANSWERS, index=False)


def swap_adapter(results: Path) -> None:
    with forged(results, ADAPTER, f"{DPO}/policy.json"):
        shutil.copyfile(results / ADAPTER.replace("dpo", "grpo"), results / ADAPTER)
        record = read_json(results / DPO / "policy.json")
        write_json(results / DPO / "policy.json", record | {"weights_sha256": sha256(results / ADAPTER)})


def edit_number(results: Path) -> None:
    with forged(results, MAIN):
        frame = pd.read_csv(results / MAIN, dtype=str, na_filter=False)
        frame.loc[0, "accuracy"] = "0.999"
        frame.to_csv(results / MAIN, index=False)


def test_a_finished_grid_is_identical_and_untouched(
    own_micro_grid: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training with GRPO that continued a checkpoint, a harvest and all cheap jobs."""
    results = own_micro_grid.results
    costs = {job: _costs(results, job) for job in jobs_of(results).values() if job.holds_device}
    wanted = {GRPO, HARVEST}
    seed = next(seed for seed in count() if {job.done[0] for job in draw(costs, 2, seed)} == wanted)
    before = stamps(results)
    assert main(["verify-run", str(results), "--jobs", "2", "--seed", str(seed)]) == 0
    assert stamps(results) == before
    record = read_json(results / "verification.json")
    assert (record["seed"], record["changed"]) == (seed, [])
    assert {check["status"] for check in record["checks"]} == {"identical"}
    names = [check["job"] for check in record["checks"]]
    assert {"train_grpo micro/seed0/grpo/g2/k4", "harvest_rollouts micro/seed0/harvest/g2/k2"} < {*names}
    assert {"make_tables", "build_report", "build_pairs"} < {name.partition(" ")[0] for name in names}

    capsys.readouterr()
    assert main(["status", str(results), "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert jobs["finished"] == jobs["total"] == len(names) + len(costs) - 2
    assert main(["push", str(results), "--to", "lab/study", "--dry-run", "--only", "none"]) == 0
    assert "verification.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("forge", "reasons"),
    [
        (flip_answer, {MAIN: "main.csv: accuracy: 1 of ", ANSWERS: "arithmetic.parquet: verdict: 1 of 40 differ"}),
        (swap_adapter, {f"{DPO}/policy.json": "adapter_model.safetensors: "}),
        (edit_number, {MAIN: "main.csv: accuracy: 1 of "}),
    ],
)
def test_forged_results_are_different(
    own_micro_grid: Project, forge: Callable[[Path], None], reasons: dict[str, str]
) -> None:
    """Time stamps and recorded digests are forged as well."""
    results = own_micro_grid.results
    forge(results)
    finished_jobs = jobs_of(results)
    jobs = [finished_jobs[f"results/{output}"] for output in reasons]
    drawn = {job: _costs(results, job) for job in jobs if job.holds_device}
    checks = verify(results, [job for job in jobs if job not in drawn], drawn)
    for check, reason in zip(checks, reasons.values(), strict=True):
        assert check.status == "different"
        assert any(line.startswith(reason) for line in check.reasons), check.reasons


def test_a_changed_file_is_different_from_its_record(
    own_micro_grid: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("g2d.report.verify_run.verify", lambda *_: iter(()))
    assert main(["verify-run", str(own_micro_grid.results)]) == 0
    with open(own_micro_grid.results / ADAPTER, "ab") as file:
        file.write(b"x")
    assert main(["verify-run", str(own_micro_grid.results)]) == 1
    assert f"{ADAPTER}: differs from its recorded digest" in capsys.readouterr().out


def test_other_versions_are_not_comparable(own_micro_grid: Project) -> None:
    """The record names them. Equal outputs are identical all the same."""
    results, jobs = own_micro_grid.results, jobs_of(own_micro_grid.results)
    with forged(results, "provenance.json"):
        record = read_json(results / "provenance.json")
        record["software"]["packages"]["torch"] = "1.0"
        write_json(results / "provenance.json", record)
    edit_number(results)
    names = ("provenance.json", "tables/main.csv", "micro/calibration/levels.csv")
    first, *checks = verify(results, [jobs[f"results/{name}"] for name in names], {})
    assert first.reasons[0].startswith("software.packages.torch: 1.0 recorded, ")
    statuses = {check.job.partition(" ")[0]: check.status for check in (first, *checks)}
    assert statuses["make_tables"] == statuses["record_provenance"] == "not comparable"
    assert statuses["select_training_set"] == "identical"


def test_only_a_known_commit_is_another_one() -> None:
    software = {
        "workflow.dirty": (True, False),
        "workflow.commit": (None, "b"),
        "software.kernels.MKL_CBWR": (None, "AVX2"),
    }
    assert _others(software) == ["software.kernels.MKL_CBWR: None recorded, AVX2 here"]
    assert _others({"workflow.commit": ("a", "b")}) == ["workflow.commit: a recorded, b here"]


def test_a_job_that_cannot_run_says_why(own_micro_grid: Project) -> None:
    results = own_micro_grid.results
    job = jobs_of(results)[f"results/{ANSWERS}"]
    (results / ADAPTER).write_bytes(b"")
    [check] = verify(results, [], {job: _costs(results, job)})
    assert check == Check(f"evaluate {ANSWERS}".removesuffix(".parquet"), "not comparable", check.reasons)
    assert "adapter_model.safetensors: not the file that" in check.reasons[0]


def test_jobs_are_drawn_in_proportion_to_their_hours(own_micro_grid: Project) -> None:
    results = own_micro_grid.results
    first, second = [job for job in jobs_of(results).values() if job.holds_device][:2]
    [cost] = _costs(results, first)
    costs = {first: [cost], second: [cost] * 3}
    drawn = [draw(costs, 1, seed)[0] for seed in range(1000)]
    assert 700 < drawn.count(second) < 800
    assert set(draw(costs, 5, 0)) == {first, second}
