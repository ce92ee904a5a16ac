"""GPUs of parallel jobs, tested by CUDA_VISIBLE_DEVICES: no GPU is needed."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from g2d.jobs import environment
from g2d.jobs.environment import require_one_gpu, take_gpus, visible_gpus
from tests.jobs.stage_script import command

JOB = """
import os, sys
from pathlib import Path
from g2d.jobs import environment
environment.DRIVER = environment.DEVICES = Path("none")  # as in WSL2
environment.take_gpus({wanted})
print(os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
sys.stdin.read()
"""


@contextmanager
def job(folder: Path, wanted: int, given: str | None = "0,1,2", **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a job that takes GPUs, prints which it sees, and keeps them until it is killed."""
    given_to_it = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    process = subprocess.Popen(
        [sys.executable, "-c", JOB.format(wanted=wanted)],
        env=dict(os.environ) | {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": ""} | given_to_it | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def sees(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def nvidia_smi(folder: Path, *gpus: str) -> Path:
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(gpus)}\n")
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def test_parallel_jobs_see_different_gpus(tmp_path: Path) -> None:
    with job(tmp_path, 1) as first, job(tmp_path, 1) as second, job(tmp_path, 1) as third:
        assert sorted(map(sees, (first, second, third))) == ["0", "1", "2"]


def test_a_job_waits_until_enough_are_free_also_after_a_kill(tmp_path: Path) -> None:
    with job(tmp_path, 2, "GPU-a,GPU-b,GPU-c") as first:
        assert sees(first) == "GPU-a,GPU-b"
        with job(tmp_path, 2, "GPU-a,GPU-b,GPU-c") as second:
            assert second.stderr is not None
            assert second.stderr.readline() == "waiting for 2 of the GPUs GPU-a, GPU-b, GPU-c: other jobs have them\n"
            with job(tmp_path, 1, "GPU-a,GPU-b,GPU-c") as third:  # a waiting job holds no GPU
                assert sees(third) == "GPU-c"
            first.send_signal(signal.SIGKILL)
            assert sees(second) == "GPU-a,GPU-b"


@pytest.mark.parametrize(("wanted", "given"), [(1, "3"), (2, "0,1"), (4, "0,1")])
def test_a_job_takes_all_its_gpus_and_others_wait(tmp_path: Path, wanted: int, given: str) -> None:
    with job(tmp_path, wanted, given) as first:
        assert sees(first) == given
        with job(tmp_path, wanted, given) as second, job(tmp_path, wanted, given) as third:
            for waiting in (second, third):
                assert waiting.stderr is not None
                assert waiting.stderr.readline().startswith("waiting for ")
            first.kill()
            ready, _, _ = select.select([second.stdout, third.stdout], [], [])
            assert len(ready) == 1
            assert ready[0].readline().strip() == given


def test_a_job_waits_for_a_gpu_that_only_nvidia_smi_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(nvidia_smi(tmp_path / "bin", "GPU-a", "GPU-b")))
    with job(tmp_path, 1, None) as first, job(tmp_path, 1, None) as second:
        seen = [sees(first), sees(second)]
        assert sorted(seen) == ["0", "1"]
        with job(tmp_path, 1, None) as third:
            assert third.stderr is not None
            assert third.stderr.readline() == "waiting for 1 of the GPUs 0, 1: other jobs have them\n"
            second.kill()
            assert sees(third) == seen[1]


def test_locks_hold_after_the_user_has_logged_out(tmp_path: Path) -> None:
    """logind removes XDG_RUNTIME_DIR then, and jobs in tmux go on."""
    of_session = tmp_path / "run"
    of_session.mkdir()
    with job(tmp_path, 1, "0,1", XDG_RUNTIME_DIR=str(of_session)) as first:
        assert sees(first) == "0"
        shutil.rmtree(of_session)
        with job(tmp_path, 1, "0,1", XDG_RUNTIME_DIR=str(of_session)) as second:
            assert sees(second) == "1"


@pytest.mark.parametrize(("given", "visible"), [("-1", []), ("0,-1,1", ["0"]), (" 1, GPU-a", ["1", "GPU-a"]), ("", [])])
def test_visible_gpus_are_those_of_cuda(given: str, visible: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == visible


@pytest.mark.parametrize(("wanted", "given"), [(0, "0,1,2"), (1, "")])
def test_a_job_without_gpus_does_not_wait(tmp_path: Path, wanted: int, given: str) -> None:
    with job(tmp_path, wanted, given) as first, job(tmp_path, wanted, given) as second:
        assert (sees(first), sees(second)) == (given, given)


def test_triton_compiles_into_a_folder_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setattr(environment, "_held", [])
    take_gpus(0)
    assert "TRITON_CACHE_DIR" not in os.environ
    take_gpus(1)
    assert os.environ["TRITON_CACHE_DIR"] == f"{tmp_path}/g2d-{os.getuid()}/triton"
    environment._held.clear()
    monkeypatch.setenv("TRITON_CACHE_DIR", "mine")
    take_gpus(1)
    assert os.environ["TRITON_CACHE_DIR"] == "mine"


def test_a_training_that_sees_several_gpus_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    require_one_gpu()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match=r"this training sees 2 GPUs and uses one: .* set CUDA_VISIBLE_DEVICES"):
        require_one_gpu()


def test_allocations_number_their_gpus_from_0(tmp_path: Path) -> None:
    with job(tmp_path, 1, "0,1", SLURM_JOB_ID="7") as first, job(tmp_path, 1, "0,1", SLURM_JOB_ID="8") as second:
        assert (sees(first), sees(second)) == ("0", "0")


def test_a_stage_takes_its_gpus_before_torch_is_imported(tmp_path: Path) -> None:
    body = (
        "print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'], 'torch' in sys.modules)"
    )
    environment = dict(os.environ) | {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": "", "CUDA_VISIBLE_DEVICES": "4,5"}
    subprocess.run(command(body, gpus=1), cwd=tmp_path, env=environment, check=True)
    assert "4 1 False" in (tmp_path / "logs/a.log").read_text().splitlines()


@pytest.mark.parametrize(("resources", "visible"), [("gpu=0", ""), ("", "4,5")])
def test_a_stage_that_requests_no_gpus_sees_none(tmp_path: Path, resources: str, visible: str) -> None:
    """Its fork of the shared imports has torch, which would count all of them in its costs."""
    *python, script = command("print(os.environ['CUDA_VISIBLE_DEVICES'])")
    assert "dict(gpu=0)" in script
    script = script.replace("dict(gpu=0)", f"dict({resources})")
    subprocess.run([*python, script], cwd=tmp_path, env=dict(os.environ) | {"CUDA_VISIBLE_DEVICES": "4,5"}, check=True)
    assert visible in (tmp_path / "logs/a.log").read_text().splitlines()


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("g2d.jobs.environment.DRIVER", tmp_path)
    monkeypatch.setattr("g2d.jobs.environment.DEVICES", tmp_path / "dev")
    monkeypatch.setenv("PATH", "")
    assert visible_gpus() == []
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:02:00.0").mkdir()
    assert visible_gpus() == ["0", "1"]
    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / "nvidia1").touch()
    (devices / "nvidiactl").touch()
    monkeypatch.setattr("g2d.jobs.environment.DRIVER", tmp_path / "driver")
    assert visible_gpus() == ["0"]
    for number in range(8):  # of a container that was given one
        (tmp_path / f"driver/{number}").mkdir(parents=True)
    assert visible_gpus() == ["0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", " GPU-a , GPU-b,")
    assert visible_gpus() == ["GPU-a", "GPU-b"]
