"""A reward of another package: a module, and an entry point that names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from g2d.experiment.config import former_names, load
from g2d.experiment.requirements import require_files
from g2d.problems import Problem
from g2d.rewards import python
from g2d.rewards.catalogue import AnyReward, reward_params, reward_settings, words_of
from g2d.rewards.judging import judge
from g2d.rewards.reward import Attempt
from g2d.settings import ConfigError
from g2d.verifier import Judgement as Verified
from tests.experiment.test_config import MINIMAL
from tests.rewards.test_judging import CONTEXT

MODULE = '''"""Short completions are worth more: a scalar reward from outside."""

from g2d.rewards.reward import Judgement, Reward
from g2d.settings import Section, key


class Short(Section):
    """The shorter the better."""

    per: int = key(100, "Characters that cost 1.", ge=1)


def score(settings, attempts, context):
    return [Judgement(-len(attempt.text) / settings.per) for attempt in attempts]


REWARD = Reward(
    name="short", version=3, settings=Short, score=score, words=lambda settings: "rewards for short completions",
    binary=False, needs_reference=False,
)
'''
ODD = '''"""Rewards that cannot even be asked what they are; to import the other module ends the process."""

from dataclasses import replace

from brevity import REWARD


def fail(settings):
    raise KeyError("\\x1b[31mred")


def leave(settings):
    raise SystemExit(0)


WORDS, NO_WORDS = replace(REWARD, words=fail), replace(REWARD, words=lambda settings: None)
CONTENT, MISTAKE = replace(REWARD, content=leave), replace(REWARD, mistake=fail)
'''
NAMED = {"words": "odd:WORDS", "no-words": "odd:NO_WORDS", "content": "odd:CONTENT", "mistake": "odd:MISTAKE"}
ENTRY_POINTS = "[g2d.rewards]\nshort = brevity:REWARD\nbroken = brevity:NOTHING\nno-reward = brevity:score\n"
ENTRY_POINTS += "".join(f"{name} = {place}\n" for name, place in NAMED.items()) + "leaves = leaving:REWARD\n"


def install(folder: Path) -> None:
    """Write the files that `pip install` would leave for such a distribution."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "brevity.py").write_text(MODULE)
    (folder / "odd.py").write_text(ODD)
    (folder / "leaving.py").write_text("import os\nos._exit(0)\n")
    (folder / "brevity-1.0.dist-info").mkdir()
    (folder / "brevity-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: brevity\nVersion: 1.0\n")
    (folder / "brevity-1.0.dist-info/entry_points.txt").write_text(ENTRY_POINTS)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    python._installed.cache_clear()
    yield
    python._installed.cache_clear()
    for name in ("brevity", "odd"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("installed")
def test_a_reward_from_outside_judges() -> None:
    entry = {"reward": "python", "name": "short", "settings": {"per": 2}}
    assert "brevity" not in sys.modules  # plugins are imported only if they are used
    settings = TypeAdapter(AnyReward).validate_python(entry)
    problem = Problem("p", "?", "5", 1, None, "a test")
    attempts = [Attempt(problem, "p", i, "x" * i, Verified("no_boxed", None)) for i in range(3)]
    judgements = judge(settings, attempts, CONTEXT)
    assert [judgement.reward for judgement in judgements] == [0, -0.5, -1]
    # The order counts, and `plugin` is the name in finished results.
    assert [*reward_params(settings).items()] == [*(entry | {"reward": "plugin", "version": 3}).items()]
    assert reward_settings(reward_params(settings)) == settings
    assert words_of(settings) == "rewards for short completions"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "long"}, r"rewards.x.name: no installed package brings the reward long .g2d.rewards: .*short"),
        ({"name": "broken"}, "rewards.x.name: brevity:NOTHING cannot be imported .AttributeError"),
        ({"name": "no-reward"}, "rewards.x.name: brevity:score is no g2d.rewards.reward.Reward"),
        ({"name": "short", "settings": {"per": 0}}, "rewards.x.settings: per: input should be greater than or equal"),
        ({"name": "short", "settings": {"pre": 1}}, "rewards.x.settings: pre: unknown key; did you mean per"),
        ({"name": "leaves"}, r"rewards.x.name: leaving:REWARD cannot be imported .*it called os._exit\(0\)"),
        ({"name": "short", "binary": True}, "rewards.x.name: function and binary are of a file"),
        ({"file": "a.py", "settings": {"per": 1}}, "rewards.x.settings: only a package's reward has settings"),
        ({}, "rewards.x.file: give a file here, or the name of a package's reward"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(entry: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load({"models": {}, "rewards": {"x": {"reward": "python", **entry}}})


@pytest.mark.usefixtures("installed")
def test_the_former_name_still_works(capsys: pytest.CaptureFixture[str]) -> None:
    given = [MINIMAL | {"rewards": {"x": {"reward": kind, "name": "short"}}} for kind in ("plugin", "python")]
    old, new = map(load, given)
    assert old == new == load(new.model_dump())
    assert capsys.readouterr() == ("", "")
    assert [len(former_names(values)) for values in given] == [1, 0]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "part", "why"),
    [
        ("words", "words", "KeyError: "),
        ("no-words", "words", "it returned None"),
        ("content", "content", "it called sys.exit"),
        ("mistake", "mistake", "KeyError: "),
    ],
)
def test_a_failing_reward_is_named_with_its_key(name: str, part: str, why: str) -> None:
    config = load(MINIMAL | {"rewards": {"x": {"reward": "python", "name": name}}})
    with pytest.raises(ConfigError, match=rf"^rewards.x: {part} of the reward short fails \(.*{why}.*fix its package"):
        require_files(config)
