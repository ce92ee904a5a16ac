"""`benchmarks/gpu.py` on a CPU: each part by itself, what it found on disk, a table whatever happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/gpu.py", "--out", str(out), "--tiny", *arguments]
    command += ["--limit", "100000", "--minutes", "100000"]  # how fast this machine is decides nothing
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_parts_that_a_cpu_allows_run_and_the_others_say_why_not(tmp_path: Path) -> None:
    parts = ["environment", "graph", "adapters", "training-0.5b", "harvest-0.5b", "engine-after"]
    done = run(tmp_path, "--device", "cpu", "--parts", *parts)
    assert done.returncode == 0, done.stdout
    found = {part["part"]: part for part in json.loads((tmp_path / "gpu.json").read_text())}
    assert list(found) == parts
    assert {name: part["status"] for name, part in found.items()} == {
        **dict.fromkeys(parts, "ok"),
        "engine-after": "skipped",
    }
    assert found["engine-after"]["reason"] == "needs a card"
    graph = found["graph"]["found"]
    assert (graph["captured"], graph["same answers"]) == (False, graph["of"])
    adapters = found["adapters"]["found"]
    assert adapters["applied at 0.001"] > adapters["merged at 0.0001"]  # bfloat16 swallows a small merged adapter
    assert adapters["once at 0.0001"] > adapters["applied at 0.0001"]
    assert adapters["once ms"] > 0
    assert found["training-0.5b"]["found"]["grpo s/step"] > 0
    assert found["harvest-0.5b"]["found"]["transformers tokens/s"] > 0
    assert (tmp_path / "gpu.md").read_text() in done.stdout


def test_a_part_that_fails_is_reported_with_its_last_line_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "shape-tiny").write_text("in the way: a folder is to be here")
    done = run(tmp_path, "--device", "cpu", "--parts", "training-0.5b", "two-gpus")
    assert done.returncode == 1
    failed, skipped = json.loads((tmp_path / "gpu.json").read_text())
    assert failed["status"] == "failed"
    assert "shape-tiny" in failed["reason"]
    assert skipped["status"] == "skipped"
    assert skipped["reason"] == "needs two cards, has 0"


def test_without_a_card_nothing_is_claimed_of_one(tmp_path: Path) -> None:
    """On the command that a machine with a card is given."""
    done = run(tmp_path, "--parts", "environment")
    (part,) = json.loads((tmp_path / "gpu.json").read_text())
    import torch

    if not torch.cuda.is_available():
        assert done.returncode == 0
        assert part["status"] == "skipped"
        assert part["reason"] == "torch sees no CUDA here"
    else:
        assert part["found"]["device"] == torch.cuda.get_device_name()
