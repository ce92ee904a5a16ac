"""`benchmarks/gpu.py` on a CPU: separate processes, results on disk, and a table even after failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import gpu
from tests.workflow import forked

NO_LIMIT = ("--limit", "100000", "--minutes", "100000")  # how fast this machine is decides nothing


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/gpu.py", "--out", str(out), "--tiny", *arguments, *NO_LIMIT]
    environment = os.environ | {"VLLM_LOGGING_LEVEL": "INFO"}  # other benchmarks, imported by tests, set it
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def forked_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """The same command with forked parts; returns its exit status."""

    def run(*parts: str) -> int:
        arguments = ["--out", str(tmp_path), "--tiny", "--device", "cpu", "--parts", *parts, *NO_LIMIT]
        monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
        return gpu.main()

    monkeypatch.setattr(gpu, "interpreter", lambda _: Path(forked.python()))
    return run


def test_parts_that_a_cpu_allows_run_and_the_others_say_why_not(
    forked_parts: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ["environment", "start", "adapters", "training-0.5b", "full-passes"]
    parts += ["harvest-0.5b", "engine-after"]
    assert forked_parts(*parts) == 0, (tmp_path / "gpu.md").read_text()
    parts_found = {part["part"]: part for part in json.loads((tmp_path / "gpu.json").read_text())}
    assert list(parts_found) == parts
    assert [part["status"] for part in parts_found.values()] == ["ok"] * 6 + ["skipped"]
    assert parts_found["engine-after"]["reason"] == "needs a card"
    adapters = parts_found["adapters"]["found"]
    assert adapters["applied at 0.001"] > adapters["merged at 0.0001"]  # bfloat16 swallows a small merged adapter
    assert adapters["applied ms"] > 0
    assert parts_found["training-0.5b"]["found"]["grpo s/step"] > 0
    passes = parts_found["full-passes"]["found"]
    assert [passes[f"{regime} auto: rows of a pass"] for regime in ("dpo", "grpo")] == [8, 4]  # auto is 4 on a CPU
    assert parts_found["start"]["found"]["ratio of CPU"] > 2  # the imports are nearly all of it
    assert parts_found["harvest-0.5b"]["found"]["transformers tokens/s"] > 0
    assert (tmp_path / "gpu.md").read_text() in capsys.readouterr().out


def test_a_part_that_fails_is_reported_with_its_last_line_and_the_others_run(
    forked_parts: Callable[..., int], tmp_path: Path
) -> None:
    (tmp_path / "shape-tiny").write_text("in the way: a folder is to be here")
    assert forked_parts("training-0.5b", "two-gpus") == 1
    failed, skipped = json.loads((tmp_path / "gpu.json").read_text())
    assert failed["status"] == "failed"
    assert "shape-tiny" in failed["reason"]
    assert (skipped["status"], skipped["reason"]) == ("skipped", "needs two cards, has 0")


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_one_start_of_vllm_serves_a_harvest_and_a_training(tmp_path: Path) -> None:
    done = run(tmp_path, "--device", "cpu", "--parts", "vllm-0.5b")
    assert done.returncode == 0, done.stdout
    (part,) = json.loads((tmp_path / "gpu.json").read_text())
    results = part["found"]
    assert results["4 rows tokens/s"] > 0
    assert results["grpo s/step"] > results["of it drawing"] > 0
    assert results["importance_sampling_ratio, mean"] == pytest.approx(1, abs=1e-4)  # float32 on both sides
    log = (tmp_path / "vllm-0.5b.log").read_text()
    assert log.count("Initializing a V1 LLM engine") == 1


def test_a_part_with_vllm_names_what_vllm_requires_and_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's start wraps an import that fails."""
    site = tmp_path / "site"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm/__init__.py").write_text(
        "try:\n    import torchvision_of_a_card\n"
        "except ImportError as error:\n    raise RuntimeError('Engine core initialization failed') from error\n"
    )
    (site / "vllm-9.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: vllm\nVersion: 9\nRequires-Dist: torch\n"
    (site / "vllm-9.dist-info/METADATA").write_text(f"{metadata}Requires-Dist: torchvision-of-a-card==1\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    done = run(tmp_path, "--device", "cpu", "--parts", "vllm-0.5b")
    assert done.returncode == 1
    (part,) = json.loads((tmp_path / "gpu.json").read_text())
    assert part["reason"] == (
        "RuntimeError: No module named 'torchvision_of_a_card'; not here of what vLLM requires: torchvision-of-a-card"
    )


def test_without_a_card_the_table_names_none(tmp_path: Path) -> None:
    done = run(tmp_path, "--parts", "environment")
    (part,) = json.loads((tmp_path / "gpu.json").read_text())
    import torch

    if torch.cuda.is_available():
        assert part["found"]["device"] == torch.cuda.get_device_name()
    else:
        assert (done.returncode, part["status"], part["reason"]) == (0, "skipped", "torch sees no CUDA here")
