"""Cost of all attempts of a grid: kept and wasted hours."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from g2d.experiment.keys import PolicyKey
from g2d.jobs import attempts as module
from g2d.jobs.attempts import BEAT_S, Attempt, Status, attempt_file, kept, lost, lost_device_s, read_attempts, recorded
from g2d.jobs.cost import Cost, Meter
from g2d.tables.costs import attempt_table, cost_table

HOUR = 3600.0
KEY = PolicyKey("demo", "dpo", 0, 0, 0)


def attempt(job: str, status: Status, started: float, hours: float = 1) -> Attempt:
    seconds = hours * HOUR
    cost = Cost(job, job.partition("-")[0], seconds, seconds, 1, "cpu", seconds, 10, 10**9)
    return Attempt(status, cost, "node1", started, started + seconds, 5.0)


# A harvest that failed, was killed and succeeded; a training that succeeded, and was repeated, and failed later.
HISTORY = [
    attempt("harvest-a", "failed", 0, 0.5),
    attempt("harvest-a", "killed", 10, 0.25),
    attempt("harvest-a", "ok", 20, 2),
    attempt("train-a", "ok", 30, 1),
    attempt("train-a", "ok", 40, 3),
    attempt("train-a", "stopped", 50, 0.5),
]


def written(folder: Path, attempts: list[Attempt]) -> Path:
    for number, entry in enumerate(attempts):
        (folder / f"{number}.json").write_text(json.dumps(asdict(entry)))
    return folder


def test_jobs_of_two_stages_may_have_one_name(tmp_path: Path) -> None:
    """`results/tables/main` is what make_tables and render_tables call their job, after their first output."""
    makes, renders = (
        replace(one, cost=replace(one.cost, stage=stage))
        for stage, one in (
            ("make_tables", attempt("main", "ok", 0, 2)),
            ("render_tables", attempt("main", "ok", 10, 1)),
        )
    )
    both = read_attempts(written(tmp_path, [renders, makes]))
    assert lost(both) == {}
    assert lost_device_s(both) == {("make_tables", "main"): 0, ("render_tables", "main"): 0}
    table = attempt_table(both).set_index("stage")
    assert table["n_repeated"].to_dict() == {"make_tables": 0, "render_tables": 0, "all": 0}
    assert table.loc["all", ["n_jobs", "device_hours_kept", "device_hours_all"]].tolist() == [2, 3, 3]


def test_tables_have_hours_of_all_and_of_kept_attempts() -> None:
    table = attempt_table(HISTORY).set_index("stage")
    counts = ["n_jobs", "n_attempts", "n_failed", "n_stopped", "n_killed", "n_repeated"]
    assert table[counts].to_numpy().tolist() == [[1, 3, 1, 0, 1, 0], [1, 3, 0, 1, 0, 1], [2, 6, 1, 1, 1, 1]]
    columns = ["device_hours_kept", "device_hours_all", "start_up_s_all", "tokens_generated_all"]
    assert table.loc["all", columns].tolist() == [5, 7.25, 30, 60]
    assert list(table.device_hours_all) == [2.75, 4.5, 7.25]
    assert attempt_table([]).empty
    bill = [entry.cost for entry in kept(HISTORY).values()]
    costs = cost_table({KEY: bill}, HISTORY)
    columns = ["device_hours", "n_lost_attempts", "device_hours_with_lost_attempts"]
    assert costs[columns].to_numpy().tolist() == [[2, 2, 2.75], [3, 2, 4.5]]
    assert list(cost_table({KEY: bill}).device_hours_with_lost_attempts) == [2, 3]


# Stopped after 3 hours (2.5 kept), killed in the second hour (1 kept), then done in 2.
GONE_ON = [
    attempt("train-a", "stopped", 0, 3),
    replace(attempt("train-a", "killed", 10, 2), carried=attempt("train-a", "ok", 0, 2.5).cost),
    replace(attempt("train-a", "ok", 20, 2), carried=attempt("train-a", "ok", 0, 3.5).cost),
]


def test_continued_steps_are_counted_once_and_not_as_lost() -> None:
    [result] = kept(GONE_ON).values()
    assert result.bill.device_s == 5.5 * HOUR
    assert result.bill.tokens_generated == 20
    assert lost_device_s(GONE_ON) == {("train", "train-a"): 1.5 * HOUR}
    table = attempt_table(GONE_ON).set_index("stage").loc["train"]
    assert (table.device_hours_kept, table.device_hours_all) == (5.5, 7)
    row = cost_table({KEY: [result.bill]}, GONE_ON).iloc[0]
    assert (row.device_hours, row.n_lost_attempts, row.device_hours_with_lost_attempts) == (5.5, 2, 7)


def test_a_killed_attempt_that_kept_more_than_it_knew_at_its_last_sign_of_life_lost_nothing() -> None:
    attempts = [attempt("train-a", "killed", 0, 1), replace(GONE_ON[2], carried=attempt("train-a", "ok", 0, 1.1).cost)]
    assert lost_device_s(attempts) == {("train", "train-a"): 0}
    table = attempt_table(attempts).set_index("stage").loc["train"]
    assert table.device_hours_kept == table.device_hours_all == pytest.approx(3.1)


def test_a_record_names_carried_costs_and_counts_only_its_attempt(tmp_path: Path) -> None:
    carried = attempt("a", "ok", 0).cost
    with recorded(tmp_path / "a.json", Meter("a", "train")) as meter:
        meter.carried = carried
        meter.tokens_generated = 17  # 10 of them by the attempt before
    [last] = read_attempts(tmp_path)
    assert (last.carried, last.cost.tokens_generated) == (carried, 7)
    assert last.cost.wall_s < carried.wall_s
    assert last.bill == meter.spent()
    old = json.loads((tmp_path / "a.json").read_text())
    del old["carried"]  # 0.1.0 had no such key
    (tmp_path / "a.json").write_text(json.dumps(old))
    assert read_attempts(tmp_path) == [replace(last, carried=None)]


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
    *({"status": "done"}, {"host": None}, {"started": "now"}, {"updated": -1}, {"start_up_s": float("nan")}),
    *({"progress": {"step": "1", "steps": 2, "since": 0}}, {"carried": {}}),
    {"process": {"pid": -1, "machine": "m", "slurm_job": None}},
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
