"""`benchmarks/gpu.py` on a CPU: separate processes, results on disk, and a table even after failures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shared import NEEDS_VLLM
from tests.workflow import forked

REPOSITORY = Path(__file__).parents[2]


ALL_PARTS = ["card", "grpo", "dpo", "harvest", "greedy", "resume"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the results of all parts on a CPU."""
    folder = tmp_path_factory.mktemp("gpu")
    script = [str(REPOSITORY / "benchmarks/gpu_parts.py"), "--out", str(folder), "--device", "cpu", "--tiny"]
    # How fast this machine is decides nothing.
    assert forked.train([*script, "--minutes", "100000", "--limit", "100000", "--parts", *ALL_PARTS], REPOSITORY) == 0
    return folder


def parts_of(folder: Path) -> list[Any]:
    return json.loads((folder / "gpu.json").read_text())


def rows_of(folder: Path) -> dict[str, Any]:
    rows = {}
    for part in parts_of(folder):
        for what, measured, _ in part["rows"]:
            rows[what] = measured
    return rows


def test_every_part_runs_on_a_cpu(measured: Path) -> None:
    statuses = {part["part"]: part["status"] for part in parts_of(measured)}
    assert statuses == dict.fromkeys(ALL_PARTS, "ok")


def test_parts_measure_times_and_distances(measured: Path) -> None:
    found = rows_of(measured)
    assert found["tiny dpo, passes of 4 (8 x 111 tokens): s of a step"] > 0
    assert found["tiny: harvest of 4 x 8 tokens, tokens/s"] > 0
    assert found["GRPO stopped and resumed: the same distance"] == 0


def test_the_rows_of_all_parts_are_a_table(measured: Path) -> None:
    table = (measured / "gpu.md").read_text()
    assert "| GRPO twice: relative distance of the adapters | 0 | 0 |" in table
    assert len(table.splitlines()) == 2 + len(rows_of(measured))


@NEEDS_VLLM
def test_the_parts_of_vllm_run_on_a_cpu(tmp_path: Path) -> None:
    script = [str(REPOSITORY / "benchmarks/gpu_parts.py"), "--out", str(tmp_path), "--device", "cpu", "--tiny"]
    parts = ["vllm-start", "vllm-restart", "vllm-grpo"]
    assert forked.train([*script, "--minutes", "100000", "--limit", "100000", "--parts", *parts], REPOSITORY) == 0
    found = rows_of(tmp_path)
    assert found["tiny: check of the weights"] == "passes"
    assert found["tiny grpo with vLLM: importance ratio, mean of each step"] == "1, 1, 1"


@pytest.fixture
def gpu_parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    import gpu_parts

    return gpu_parts


def test_a_part_that_fails_or_takes_too_long_keeps_its_rows_and_says_why(gpu_parts: Any, tmp_path: Path) -> None:
    def fails(_setting: Any) -> Iterator[Any]:
        yield gpu_parts.Row("before", 1.5)
        raise ValueError("the card is on fire")

    def never_ends(_setting: Any) -> Iterator[Any]:
        yield gpu_parts.Row("before", 1.5)
        time.sleep(1000)

    setting = gpu_parts.Setting(tmp_path, "cpu", tiny=True, smollm2=None)
    gpu_parts.PARTS["fails"] = gpu_parts.Part(fails, 0, 100)
    gpu_parts.PARTS["never-ends"] = gpu_parts.Part(never_ends, 0, 2)
    failed = gpu_parts.run("fails", setting, 100)
    stopped = gpu_parts.run("never-ends", setting, 100)
    assert failed["status"] == "failed: ValueError: the card is on fire"
    assert stopped["status"] == "failed: not ready after 2 s; last line: no output"
    assert failed["rows"] == stopped["rows"] == [["before", 1.5, ""]]
    assert gpu_parts.table([failed, stopped]).splitlines()[2:4] == [
        "| before | 1.5 |  |",
        "| fails | failed: ValueError: the card is on fire |  |",
    ]


def test_a_part_is_skipped_if_its_time_is_not_left(gpu_parts: Any, tmp_path: Path) -> None:
    part = gpu_parts.run("grpo", gpu_parts.Setting(tmp_path, "cpu", tiny=True, smollm2=None), 59)
    assert part["status"] == "skipped: 59 s are left, and it needs 60"


def test_without_a_card_it_says_so_in_an_environment_of_its_own(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("has a card")
    command = [sys.executable, "benchmarks/gpu.py", "--out", str(tmp_path), "--tiny"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "torch sees no CUDA here\n")
    assert str(REPOSITORY / "src") in next((tmp_path / "venv").glob("lib/*/site-packages/g2d.pth")).read_text()
