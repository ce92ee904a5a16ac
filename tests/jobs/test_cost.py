"""The bill: measured, inherited along the ancestry, and never counted twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from g2d.jobs.cost import Cost, CostFile, Meter, merge_costs, read_cost, write_cost
from g2d.jobs.usage import Elsewhere, charge, visible_devices


def cost(job: str, seconds: float = 3600) -> Cost:
    return Cost(job, job.partition("/")[0], seconds, seconds, 1, "cpu", seconds, 100, 2**20)


@pytest.fixture
def grid(tmp_path):
    """base -> calibration -> warmup/150 -> warmup/300 -> harvest -> dpo, each an hour; dpo reads base as well."""
    parents = {
        "base": [],
        "calibration": ["base"],
        "warmup/150": ["base", "calibration"],
        "warmup/300": ["calibration", "warmup/150"],
        "harvest": ["warmup/300"],
        "dpo": ["base", "harvest"],
    }
    paths = {job: tmp_path / job.replace("/", "-") / "cost.json" for job in parents}
    for job, path in paths.items():
        path.parent.mkdir()
        write_cost(path, cost(job), [paths[parent] for parent in parents[job]])
    return paths


def test_one_file_holds_the_whole_bill_each_job_once_oldest_first(grid):
    bill = read_cost(grid["dpo"])
    assert bill.own == cost("dpo")
    assert [record.job for record in bill.records] == list(grid)
    assert bill.device_hours == 6
    assert read_cost(grid["base"]).device_hours == 1


def test_a_job_that_ran_again_is_billed_as_it_ran_last(grid):
    write_cost(grid["base"], cost("base", 7200))
    write_cost(grid["dpo"], cost("dpo"), [grid["harvest"], grid["base"]])
    assert read_cost(grid["dpo"]).device_hours == 7
    write_cost(grid["dpo"], cost("dpo"), [grid["base"], grid["harvest"]])
    assert read_cost(grid["dpo"]).device_hours == 7, "whatever the order of the parents"


def test_a_single_parent_may_come_bare(grid, tmp_path):
    write_cost(tmp_path / "cost.json", cost("evaluation"), str(grid["base"]))
    assert read_cost(tmp_path / "cost.json").device_hours == 2


def test_two_jobs_of_one_name_are_refused(grid, tmp_path):
    with pytest.raises(ValueError, match="base"):
        write_cost(tmp_path / "cost.json", cost("base"), [grid["dpo"]])


def edited(**changes):
    return lambda record: record | changes


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited(wall_s="1"), "wall_s must be float"),
        (edited(wall_s=-1.0), "wall_s must be finite and not negative"),
        (edited(device_s=float("nan")), "device_s must be finite"),
        (edited(devices=True), "devices must be int"),
        (edited(devices=1.5), "devices must be int"),
        (edited(gpu_hours=3), "unknown key gpu_hours"),
        (edited(ancestry=None), "ancestry"),
        (edited(ancestry=[3]), "ancestry 0: expected an object"),
        (edited(job="base"), "'base' is counted twice"),
        (lambda record: {k: v for k, v in record.items() if k != "device_s"}, "lacks device_s"),
        (lambda record: [record], "JSON object"),
    ],
)
def test_a_malformed_file_is_named(grid, edit, message):
    path = grid["calibration"]
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=rf"calibration.cost\.json.*{message}"):
        read_cost(path)


def test_a_truncated_file_is_named(grid):
    grid["base"].write_text(grid["base"].read_text()[:40])
    with pytest.raises(ValueError, match=r"base.cost\.json"):
        read_cost(grid["base"])


def test_a_file_from_before_gpu_memory_was_measured_is_read(grid):
    old = json.loads(grid["base"].read_text())
    assert old.pop("peak_gpu_memory_bytes") is None
    grid["base"].write_text(json.dumps(old))
    assert read_cost(grid["base"]).own == cost("base")


def test_a_block_is_measured():
    meter = Meter("seed0/harvest", "harvest")
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    meter.tokens_generated += 7
    found = meter.end()
    assert meter.spent() is found, "nothing after its end counts"
    assert (found.job, found.stage, found.tokens_generated) == ("seed0/harvest", "harvest", 7)
    assert found.wall_s >= 0.05
    assert found.cpu_s > 0.055, "the child's time counts"
    assert found.device_s == found.wall_s * found.devices
    assert 2**20 < found.peak_memory_bytes < 2**40
    assert found.peak_gpu_memory_bytes is None  # nothing here has a GPU in use


def test_without_torch_the_cpu_is_one_device(monkeypatch):
    monkeypatch.setattr("g2d.jobs.usage._elsewhere", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert visible_devices() == ("cpu", 1)
    assert "torch" not in sys.modules


def test_visible_gpus_are_counted(monkeypatch):
    monkeypatch.setattr("g2d.jobs.usage._elsewhere", [])  # what other tests of this process were charged

    class Cuda:
        is_available = staticmethod(lambda: True)
        get_device_name = staticmethod(lambda index: "NVIDIA A100")
        device_count = staticmethod(lambda: 2)
        is_initialized = staticmethod(lambda: True)
        max_memory_allocated = staticmethod(lambda gpu: 10**9 * (gpu + 1))

    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"cuda": Cuda}))
    found = Meter("job", "stage").end()
    assert (found.device, found.devices) == ("NVIDIA A100", 2)
    assert found.device_s == 2 * found.wall_s
    assert found.peak_gpu_memory_bytes == 2 * 10**9  # of the fuller one


def test_what_a_shared_process_did_for_a_job_is_on_its_bill(monkeypatch):
    monkeypatch.setattr("g2d.jobs.usage._elsewhere", [])
    meter = Meter("job", "evaluate")
    charge(Elsewhere(cpu_s=100, peak_memory_bytes=2**45, device="NVIDIA A100", devices=2))
    charge(Elsewhere(cpu_s=20, peak_memory_bytes=2**44, device="NVIDIA A100", devices=2))
    found = meter.end()
    assert 120 < found.cpu_s < 121
    assert (found.peak_memory_bytes, found.device, found.devices) == (2**45, "NVIDIA A100", 2)


def test_attempts_of_one_job_add_up():
    earlier = replace(cost("a", 10), devices=2, peak_memory_bytes=2**30, peak_gpu_memory_bytes=5)
    later = replace(cost("a", 4), device="NVIDIA A100", peak_gpu_memory_bytes=7)
    bill = merge_costs(earlier, later)
    assert (bill.wall_s, bill.cpu_s, bill.device_s, bill.tokens_generated) == (14, 14, 14, 200)
    assert (bill.devices, bill.device) == (2, "cpu, NVIDIA A100")
    assert (bill.peak_memory_bytes, bill.peak_gpu_memory_bytes) == (2**30, 7)
    assert merge_costs(bill, later).device == "cpu, NVIDIA A100"
    assert merge_costs(None, later) == later


def test_records_are_values():
    assert CostFile(cost("a"), (cost("b", 1800),)).device_hours == 1.5
    assert replace(cost("a"), devices=2) != cost("a")
