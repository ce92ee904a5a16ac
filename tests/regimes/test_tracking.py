"""Training curves in the real trackers hold what metrics.jsonl holds, and training is the same with and without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.models import tiny_policy
from tests.workflow import forked

POLICY = "tiny/seed0/grpo/g2/k2"
SCRIPT = """
import sys
from pathlib import Path
from g2d.policies.settings import Lora
from g2d.regimes.job import TrainingJob
from g2d.regimes.training import Logging
from g2d.regimes.warmup import Warmup
from g2d.policies import Policy
from g2d.regimes.grpo import train_grpo
from g2d.regimes.training import tracking_arguments, write_metrics
from g2d.problems.synthetic import generate

work, base, tracker, policy_id = Path("work"), *sys.argv[1:]
assert tracker not in sys.modules
problems, warmup = generate("arithmetic", "train", 16, seed=0), Warmup(steps=[2], max_completion_length=12)
tracking = tracking_arguments(Logging(report_to=tracker), policy_id)
job = TrainingJob(
    Policy("tiny/base", "tiny", "base", base=base), problems, warmup,
    lora=Lora(), group_size=2, k=2, seed=0, work=work, tracking=tracking,
)
log = train_grpo(job).log
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
        assert forked.train(arguments, folder) == 0
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
    told = subprocess.run([sys.executable, "-m", "trackio.cli", *ask], check=True, capture_output=True, text=True)
    assert [(value["step"], value["value"]) for value in json.loads(told.stdout)["values"]] == rewards
    assert adapter == untracked
