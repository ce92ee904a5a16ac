"""Keys of earlier versions are refused with what to do instead."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from g2d.checks.load import load, owner, read_record
from g2d.cli import COMMANDS, main
from g2d.config.sections import MODEL_SECTIONS
from g2d.settings import ConfigError
from g2d.settings.gone import COMMANDS_GONE, GONE, gone_sentence
from tests.configs import MINIMAL


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


# A configuration with an entry in each section whose names are the user's.
WITH_NAMES = MINIMAL | {
    "regimes": {
        "offline": {"regime": "rft", "steps": [150]},
        "online": {"regime": "semi_online_dpo", "steps": [150], "sync_every": 1},
    },
    "ablations": {"mine": {"steps": [150], "warmup": {"learning_rate": 1e-4}, "dpo": {"beta": 0.2}}},
    "rewards": {"coin": {"reward": "random"}},
}
OF_PROBLEMS = {"seed", "source", "family", "fields"}


def places(path: str) -> Iterator[str]:
    """Yield where a key may stand in `WITH_NAMES`, from its path in `GONE`."""
    section, _, rest = path.partition(".")
    if section == "*":
        problems = rest.partition(".")[0] in OF_PROBLEMS
        sections = ["pool", "benchmarks.held-out"] if problems else ["regimes.online", "warmup"]
        for name in sections:
            yield from places(f"{name}.{rest}")
    elif "*" in path:
        for name in WITH_NAMES[section]:
            yield path.replace("*", name, 1)
    else:
        yield path
        if section in ("warmup", "dpo"):
            yield f"ablations.mine.{path}"
        if section in MODEL_SECTIONS and rest:
            yield f"models.demo.settings.{path}"


def with_key(path: str, value: Any) -> dict[str, Any]:
    values = copy.deepcopy(WITH_NAMES)
    *sections, name = path.split(".")
    inner = values
    for section in sections:
        if not isinstance(inner.setdefault(section, {}), dict):
            inner[section] = {}
        inner = inner[section]
    inner[name] = value
    return values


@pytest.mark.parametrize("gone", GONE)
def test_each_key_that_is_gone_is_refused_with_its_sentence_wherever_it_stood(gone: str) -> None:
    load(WITH_NAMES)
    path, _, value = gone.partition("=")
    values = [value.replace("*", "mine_")] if value else [1, "auto", None, True, [1], {}, {"key": 1}]
    for place in places(path):
        for written in values:
            with pytest.raises(ConfigError) as error:
                load(with_key(place, written))
            assert f"gone since 0.3: {GONE[gone]}" in str(error.value), (place, written)


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


def test_the_record_of_an_earlier_version_is_read_without_its_gone_keys(tmp_path: Path) -> None:
    """Records have all keys, also those that had no effect; without its owner, a folder could be replaced."""
    record = tmp_path / "config.yaml"
    config = load(MINIMAL | {"ablations": {"ipo": {"steps": [150], "dpo": {"loss": "ipo"}}}})
    config.save(record, ["my.yaml"])
    values = yaml.safe_load(record.read_text())
    values["looks"] = None
    values["warmup"]["lag"] = 0
    values["ablations"]["ipo"]["select"] = False
    values["models"]["demo"]["settings"] = {"engine": {"keep_alive": 0}}
    record.write_text(f'# files: ["my.yaml"]\n{yaml.safe_dump(values)}')
    before = owner(record)
    assert before is not None
    assert before.files == ["my.yaml"]
    assert before.config.for_model("demo") == config.for_model("demo")
    assert before.config.identity == config.identity | {"models": before.config.identity["models"]}
    values["regimes"] = {"mine": {"regime": "kto"}}
    record.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=r"regimes.mine.regime: gone since 0.3"):
        read_record(record)
