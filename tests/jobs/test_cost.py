"""Cost records: measured, passed on to later jobs, and never counted twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from g2d.jobs.cost import (
    Cost,
    Elsewhere,
    Meter,
    charge,
    charge_gpu_memory,
    merge_costs,
    read_cost,
    visible_devices,
    write_cost,
)


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


def test_a_file_has_each_job_once_oldest_first(grid):
    total = read_cost(grid["dpo"])
    assert total.own == cost("dpo")
    assert [record.job for record in total.records] == list(grid)
    assert total.device_hours == 6
    assert read_cost(grid["base"]).device_hours == 1


def test_the_last_run_of_a_job_counts(grid):
    write_cost(grid["base"], cost("base", 7200))
    write_cost(grid["dpo"], cost("dpo"), [grid["harvest"], grid["base"]])
    assert read_cost(grid["dpo"]).device_hours == 7
    write_cost(grid["dpo"], cost("dpo"), [grid["base"], grid["harvest"]])
    assert read_cost(grid["dpo"]).device_hours == 7, "in any order of the parents"
    write_cost(grid["dpo"], cost("dpo"), str(grid["base"]))  # Snakemake passes a single parent as a string
    assert read_cost(grid["dpo"]).device_hours == 3


def test_two_jobs_with_one_name_are_refused(grid, tmp_path):
    with pytest.raises(ValueError, match="base"):
        write_cost(tmp_path / "cost.json", cost("base"), [grid["dpo"]])


def edited(**changes):
    return lambda record: record | changes


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited(wall_s="1"), "wall_s: Input should be a valid number: delete the file"),
        (edited(device_s=float("nan")), "device_s: Input should be a valid number"),
        (edited(devices=True), "devices: Input should be a valid integer"),
        (edited(devices=1.5), "devices: Input should be a valid integer"),
        (edited(ancestry=None), "ancestry"),
        (edited(ancestry=[3]), "ancestry 0: Input should be an object"),
        (edited(job="base"), "'base' is counted twice"),
        (lambda record: {k: v for k, v in record.items() if k != "device_s"}, "device_s: Field required"),
        (lambda record: [record], "JSON object"),
    ],
)
def test_a_malformed_file_is_named(grid, edit, message):
    path = grid["calibration"]
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=rf"calibration.cost\.json.*{message}"):
        read_cost(path)


@pytest.fixture(scope="module")
def measured():
    """Cost of a block with a child process."""
    meter = Meter("seed0/harvest", "harvest")
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    meter.tokens_generated += 7
    cost = meter.end()
    assert meter.spent() is cost, "nothing after its end counts"
    return cost


def test_a_cost_names_its_job_and_counts_tokens(measured):
    assert (measured.job, measured.stage, measured.tokens_generated) == ("seed0/harvest", "harvest", 7)


def test_time_is_measured(measured):
    assert measured.wall_s >= 0.05
    assert measured.cpu_s > 0.055, "the child's time counts"
    assert measured.device_s == measured.wall_s * measured.devices


def test_memory_is_measured(measured):
    assert 2**20 < measured.peak_memory_bytes < 2**40
    assert measured.peak_gpu_memory_bytes is None  # nothing here has a GPU in use


def test_without_torch_the_cpu_is_one_device(monkeypatch):
    monkeypatch.setattr("g2d.jobs.cost._elsewhere", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert visible_devices() == ("cpu", 1)
    assert "torch" not in sys.modules


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr("g2d.jobs.cost._elsewhere", [])  # without charges of other tests in this process
    monkeypatch.setattr("g2d.jobs.cost._gpu_peaks", [])

    class Cuda:
        is_available = staticmethod(lambda: True)
        get_device_name = staticmethod(lambda index: "NVIDIA A100")
        device_count = staticmethod(lambda: 2)
        is_initialized = staticmethod(lambda: True)
        max_memory_allocated = staticmethod(lambda gpu: 10**9 * (gpu + 1))
        memory_allocated = staticmethod(lambda gpu: 10**8 * (gpu + 1))

    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"cuda": Cuda}))


def test_visible_gpus_are_counted(two_gpus):
    measured = Meter("job", "stage").end()
    assert (measured.device, measured.devices) == ("NVIDIA A100", 2)
    assert measured.device_s == 2 * measured.wall_s
    assert measured.peak_gpu_memory_bytes == 2 * 10**9  # the fuller GPU


@pytest.mark.parametrize(("peak", "expected"), [(None, 2.0), (10**9, 2.0), (3 * 10**9, 3.2)])
def test_the_gpu_memory_of_a_probe_is_counted_beside_what_the_trainer_holds(two_gpus, peak, expected):
    charge_gpu_memory(peak)
    assert Meter("job", "stage").end().peak_gpu_memory_bytes == expected * 10**9


def test_usage_of_a_shared_process_is_charged_to_the_job(monkeypatch):
    monkeypatch.setattr("g2d.jobs.cost._elsewhere", [])
    meter = Meter("job", "evaluate")
    charge(Elsewhere(cpu_s=100, peak_memory_bytes=2**45))
    measured = meter.end()
    assert 100 < measured.cpu_s < 101
    assert measured.peak_memory_bytes == 2**45


@pytest.fixture
def later():
    return replace(cost("a", 4), device="NVIDIA A100", peak_gpu_memory_bytes=7)


@pytest.fixture
def total(later):
    """Cost of two attempts on different devices."""
    earlier = replace(cost("a", 10), devices=2, peak_memory_bytes=2**30, peak_gpu_memory_bytes=5)
    return merge_costs(earlier, later)


def test_attempts_of_one_job_add_up(total):
    assert (total.wall_s, total.cpu_s, total.device_s, total.tokens_generated) == (14, 14, 14, 200)


def test_the_largest_memory_of_attempts_counts(total):
    assert (total.peak_memory_bytes, total.peak_gpu_memory_bytes) == (2**30, 7)


def test_devices_of_attempts_are_named_once(total, later):
    assert (total.devices, total.device) == (2, "cpu, NVIDIA A100")
    assert merge_costs(total, later).device == "cpu, NVIDIA A100"


def test_a_first_attempt_is_the_cost(later):
    assert merge_costs(None, later) == later


def test_attempts_with_different_threads_have_none(later):
    assert [merge_costs(replace(later, threads=n), replace(later, threads=2)).threads for n in (2, 4)] == [2, None]
