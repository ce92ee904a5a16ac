"""Training curves in the real trackers hold what metrics.jsonl holds, and training is the same with and without."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from g2d.regimes.common.tracking import sync_command
from tests.models import tiny_policy
from tests.workflow import forked

POLICY = "tiny/seed0/grpo/g2/k2"
SCRIPT = """
import sys
from pathlib import Path
from g2d.policies import PolicyRecord
from g2d.policies.model_keys import Lora
from g2d.problems.synthetic import generate
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.common.tracking import Logging, finish_tracking, tracking_arguments
from g2d.regimes.common.trainers import write_metrics
from g2d.regimes.grpo.keys import Warmup

work, base, tracker, policy_id = Path("work"), *sys.argv[1:]
assert tracker == "wandb" or tracker not in sys.modules  # TRL imports wandb where it is installed
problems, warmup = generate("arithmetic", "train", 16, seed=0), Warmup(steps=[2], max_completion_length=12)
tracking = tracking_arguments(Logging(report_to=tracker), policy_id)
job = TrainingJob(
    PolicyRecord("tiny/base", "tiny", "base", base=base), problems, warmup,
    lora=Lora(), group_size=2, k=2, seed=0, work=work, tracking=tracking,
)
log = train_grpo(job).log
finish_tracking()
write_metrics(work / "metrics.jsonl", log)
"""


def train(folder: Path, tracker: str) -> tuple[bytes, list[Any]]:
    """Train, with a tracker in a process that starts without it imported; adapter, and step and reward."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(SCRIPT)
    arguments = [str(script), tiny_policy().base, tracker, POLICY]
    if tracker == "none":
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "argv", arguments)
            exec(SCRIPT, {})
    else:
        # Not `forked.train`: trackio reads its folder at import, and TRL's GRPO imports it.
        status, output = forked.call(arguments, folder, dict(os.environ))
        assert status == 0, output
    rows = map(json.loads, (folder / "work/metrics.jsonl").read_text().splitlines())
    return (folder / "work/adapter/adapter_model.safetensors").read_bytes(), [(r["step"], r["reward"]) for r in rows]


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return train(tmp_path_factory.mktemp("tracking") / "none", "none")[0]


def test_tensorboard(tmp_path: Path, untracked: bytes) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    adapter, rewards = train(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run/results/logs/tensorboard" / POLICY))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/reward")] == rewards
    assert adapter == untracked


def test_trackio(tmp_path: Path, untracked: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, rewards = train(tmp_path / "run", "trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "run/results/logs/trackio"))
    ask = ["get", "metric", "--project", "g2d", "--run", POLICY, "--metric", "train/reward", "--json"]
    done = subprocess.run([sys.executable, "-m", "trackio.cli", *ask], check=True, capture_output=True, text=True)
    assert [(value["step"], value["value"]) for value in json.loads(done.stdout)["values"]] == rewards
    assert adapter == untracked


def test_wandb_without_a_network_or_an_account(
    tmp_path: Path, untracked: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # where nobody listens
    adapter, rewards = train(tmp_path / "run", "wandb")
    (records,) = offline_runs(tmp_path / "run/results/logs")
    assert [(r.run.display_name, r.run.project) for r in records if r.HasField("run")] == [(POLICY, "g2d")]
    assert records[-1].HasField("exit")  # so that nothing is lost where a process ends without its exit handlers
    rows = [{"/".join(i.nested_key): json.loads(i.value_json) for i in r.history.item} for r in records]
    assert [(row["train/global_step"], row["train/reward"]) for row in rows if "train/reward" in row] == rewards
    assert adapter == untracked
    monkeypatch.chdir(tmp_path / "run")
    command = sync_command()
    assert command is not None
    done = subprocess.run(
        f"{Path(sys.executable).parent}/{command} --dry-run", shell=True, check=True, capture_output=True, text=True
    )
    assert "offline-run-" in done.stdout + done.stderr


def offline_runs(logs: Path) -> list[list[Any]]:
    """The records of every run that W&B has written to a folder: a log in LevelDB's format, of protocol buffers."""
    from wandb.proto.wandb_internal_pb2 import Record

    runs = []
    for file in logs.glob("wandb/offline-run-*/*.wandb"):
        content, at, record, records = file.read_bytes(), 7, b"", []
        while at + 7 <= len(content):
            if (left := 32768 - at % 32768) < 7:  # no header fits into the rest of a block
                at += left
                continue
            _, size, kind = struct.unpack_from("<IHB", content, at)
            record, at = record + content[at + 7 : at + 7 + size], at + 7 + size
            if kind in (1, 4):  # whole, or the last part
                records.append(Record.FromString(record))
                record = b""
        runs.append(records)
    return runs
