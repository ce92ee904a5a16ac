"""Records of attempts: what they carry, signs of life, and broken ones."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from g2d.jobs import attempts as module
from g2d.jobs.attempts import BEAT_S, JobAttempt, Process, Status, attempt_file, recorded
from g2d.jobs.cost import Cost, Meter, merge_costs
from tests.attempts import read_attempts

HOUR = 3600.0


def attempt(job: str, status: Status, started: float, hours: float = 1) -> JobAttempt:
    seconds = hours * HOUR
    cost = Cost(job, job.partition("-")[0], seconds, seconds, 1, "cpu", seconds, 10, 10**9)
    return JobAttempt(status, cost, "node1", started, started + seconds, Process(1, "elsewhere", None))


def written(folder: Path, attempts: list[JobAttempt]) -> Path:
    for number, entry in enumerate(attempts):
        (folder / f"{number}.json").write_text(json.dumps(asdict(entry)))
    return folder


def test_a_record_names_carried_costs_and_counts_only_its_attempt(tmp_path: Path) -> None:
    carried = attempt("a", "ok", 0).cost
    with recorded(tmp_path / "a.json", Meter("a", "train")) as meter:
        meter.carried = carried
        meter.tokens_generated = 17  # 10 of them by the attempt before
    [last] = read_attempts(tmp_path)
    assert (last.carried, last.cost.tokens_generated) == (carried, 7)
    assert last.cost.wall_s < carried.wall_s
    assert merge_costs(last.carried, last.cost) == meter.spent()


def test_without_a_last_word_silence_or_a_later_attempt_tells(tmp_path: Path) -> None:
    now = time.time()
    alive = replace(attempt("a", "running", now - 100), updated=now - BEAT_S)
    silent = replace(attempt("b", "running", now - 9000), updated=now - 8000)
    repeated = replace(attempt("c", "running", now - 100), updated=now - BEAT_S)
    again = attempt("c", "ok", now - 10)
    assert read_attempts(tmp_path / "absent") == []
    attempts = read_attempts(written(tmp_path, [alive, silent, repeated, again]))
    assert [(entry.cost.job, entry.status) for entry in attempts] == [("b", "killed"), ("c", "killed"), ("c", "ok")]


def test_a_running_attempt_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_S", 0.01)
    file = tmp_path / "a.json"

    def tokens() -> int:
        return json.loads(file.read_text())["cost"]["tokens_generated"]

    with recorded(file, Meter("a", "harvest")) as meter:
        meter.tokens_generated = 3
        while tokens() != 3:
            time.sleep(0.01)
        assert json.loads(file.read_text())["status"] == "running"
    assert json.loads(file.read_text())["status"] == "ok"


def test_a_log_names_its_attempts() -> None:
    file = attempt_file("results/logs/evaluate/demo/logs.v1/logs.log")
    assert str(file.parent) == "results/attempts/evaluate/demo/logs.v1"
    assert file.name.startswith("logs.2")
    assert file.suffix == ".json"


WRONG: list[dict[str, object]] = [
    *({"status": "done"}, {"host": None}, {"started": "now"}),
    *({"progress": {"step": "1", "steps": 2, "since": 0}}, {"carried": {}}),
    {"process": {"pid": "1", "machine": "m", "slurm_job": None}},
]


@pytest.mark.parametrize(
    "content",
    [*("{}", "[1]", '{"status": "ok"}', '{"cost": {}}', "{")]
    + [json.dumps(asdict(attempt("a", "ok", 0)) | wrong) for wrong in WRONG],
)
def test_a_broken_record_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match=r"x\.json"):
        read_attempts(tmp_path)


def test_nobody_asks_cuda_from_a_side_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking CUDA in the parent ruins it for a child that is forked later, so signs of life do without."""

    class Torch:
        version = type("version", (), {"cuda": "13.0"})

    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    cost = Meter("a", "harvest").so_far()
    assert (cost.device, cost.devices) == ("unknown", 2)
