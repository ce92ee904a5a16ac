"""When a checkpoint is written, and a quota that fills meanwhile: the one before stays, the message names the place."""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from g2d.jobs.cost import Meter
from g2d.jobs.files import DiskError
from g2d.regimes.run.checkpoints import Checkpointed, Checkpointing, Checkpoints, _schedule, require_intact, train


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
                monkeypatch.setattr("g2d.regimes.run.checkpoints.write_json", over_quota)

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


@pytest.mark.parametrize("others", [0, signal.SIGTERM])
def test_a_signal_that_comes_during_the_vote_waits_for_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """If one process stopped, the others would wait for it at the next gradient."""
    requests: list[str] = []

    def vote(due: int, signalled: int) -> list[int]:
        requests.append("SIGINT")  # after this process has cast its vote
        return [due, max(signalled, others)]

    monkeypatch.setattr("g2d.regimes.run.processes.largest", vote)
    schedule = _schedule(Checkpointing(every_steps=None, every_minutes=None), None, 1, requests, Meter("job", "train"))
    state = SimpleNamespace(global_step=0, max_steps=9)
    schedule.on_train_begin(None, state, None)
    for step, stops in ((1, bool(others)), (2, True)):
        state.global_step, control = step, SimpleNamespace(should_save=False, should_training_stop=False)
        schedule.on_step_end(None, state, control)
        assert (control.should_save, control.should_training_stop) == (stops, stops)
