"""When a checkpoint is written, and a quota that fills meanwhile: the one before stays, the message names the place."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from g2d.jobs.cost import Meter
from g2d.jobs.files import DiskError
from g2d.regimes.common.checkpoints import Checkpointed, Checkpointing, Checkpoints, require_intact, train
from tests.regimes.trainings import DPO, dpo


@pytest.mark.parametrize("at", ["weights", "manifest"])
def test_a_quota_that_fills_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    checkpoints = Checkpoints(tmp_path / "work", {"lr": 1}, Meter("job", "train_dpo"))
    state = SimpleNamespace(global_step=1, max_steps=2)

    def over_quota(*_: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    class Trainer:
        """As transformers' trainer: saves every step."""

        model = SimpleNamespace()

        def __init__(self) -> None:
            self.state = state

        def add_callback(self, _: object) -> None: ...

        def train(self, **_: object) -> None:
            for state.global_step in (1, 2):
                self._save_checkpoint(None, None)

        def _save_checkpoint(self, _model: object, _trial: object) -> None:
            draft = checkpoints.draft / f"checkpoint-{state.global_step}"
            draft.mkdir(parents=True)
            (draft / "optimizer.pt").write_text("half")
            if state.global_step == 2:
                if at == "weights":
                    over_quota()
                monkeypatch.setattr("g2d.regimes.common.checkpoints.write_json", over_quota)

    class Sealing(Checkpointed, Trainer): ...

    with pytest.raises(DiskError, match=r"work: cannot be written \(Disk quota exceeded\): make room"):
        train(Sealing(), checkpoints, Checkpointing())
    assert sorted(path.name for path in (tmp_path / "work").rglob("*")) == [
        "manifest.json",
        "optimizer.pt",
        "step-1",
        "trainer",
    ]
    latest = checkpoints.latest()
    assert latest is not None
    assert require_intact(latest)["step"] == 1


def test_a_trainer_whose_checkpoints_would_not_be_sealed_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "work", {}, Meter("job", "train_toy"))
    with pytest.raises(TypeError, match="SimpleNamespace: its first base class must be Checkpointed"):
        train(SimpleNamespace(), checkpoints, Checkpointing())


class Code:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('unpickled')",)


def test_no_checkpoint_runs_code_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the file claims to be, and however it is read."""
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")  # and put back
    dpo(tmp_path / "work", settings=DPO.model_copy(update={"max_steps": 1}))
    torch.save([{"state": Code()}], tmp_path / "optimizer.pt")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(tmp_path / "optimizer.pt", weights_only=False)
