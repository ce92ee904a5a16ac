"""Keys of earlier versions are refused with what to do instead."""

from __future__ import annotations

import pytest

from g2d.cli import COMMANDS, main
from g2d.experiment.config import load
from g2d.settings import ConfigError
from g2d.settings.gone import COMMANDS_GONE, GONE, gone_sentence
from tests.experiment.test_config import MINIMAL


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GONE, "formerly", "write now")
    monkeypatch.setitem(GONE, "warmup.formerly", "write warmup.now")
    monkeypatch.setitem(GONE, "regimes.*.regime=former", "use regime: rft")
    monkeypatch.setitem(GONE, "warmup.steps.formerly", "list every K")


@pytest.mark.usefixtures("gone")
def test_a_former_key_is_refused_wherever_it_may_stand() -> None:
    cases = [
        ({"formerly": 1}, "config: formerly: gone since 0.3: write now"),
        ({"warmup": {"steps": {"formerly": 2}}}, "config: warmup.steps: gone since 0.3: list every K"),
        ({"warmup": {"formerly": 1}}, "config: warmup.formerly: gone since 0.3: write warmup.now"),
        (
            {"ablations": {"mine": {"steps": [50], "warmup": {"formerly": 1}}}},
            "config: ablations.mine.warmup.formerly: gone since 0.3: write warmup.now",
        ),
        ({"regimes": {"mine": {"regime": "former"}}}, "config: regimes.mine.regime: gone since 0.3: use regime: rft"),
    ]
    wrong = {}
    for changes, expected in cases:
        with pytest.raises(ConfigError) as error:
            load(MINIMAL | changes)
        if expected not in str(error.value):
            wrong[str(changes)] = str(error.value)
    assert not wrong


@pytest.mark.usefixtures("gone")
def test_other_mistakes_keep_their_messages() -> None:
    assert gone_sentence("warmup.learning_rat", 1) is None
    with pytest.raises(ConfigError, match="did you mean learning_rate"):
        load(MINIMAL | {"warmup": {"learning_rat": 1}})


def test_a_former_command_says_what_to_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert not COMMANDS_GONE.keys() & COMMANDS.keys()
    for name, sentence in COMMANDS_GONE.items():
        assert main([name, "results", "--any", "option"]) == 2
        assert capsys.readouterr().err == f"g2d {name}: gone since 0.3: {sentence}\n"
