"""Variables of torchrun and accelerate in a user's shell, which no training reads."""

from __future__ import annotations

import os

import pytest

from g2d.jobs.environment import forget_launcher


def test_variables_of_a_launcher_are_deleted_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "there", "ACCELERATE_USE_CPU": "true"}
    for name, value in (foreign | {"LOCAL_SCRATCH": "here"}).items():
        monkeypatch.setenv(name, value)
    forget_launcher()
    assert not foreign.keys() & os.environ.keys()
    assert os.environ["LOCAL_SCRATCH"] == "here"
    assert capsys.readouterr().out.startswith("WORLD_SIZE=4 is ignored: ")
    forget_launcher()
    assert capsys.readouterr().out == ""
